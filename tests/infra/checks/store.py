"""The model store, and the lever beside it: what a deploy makes once and keeps."""

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.state import Mode, State, loads
from tests.infra.checks.shared import ACCOUNT, NO_CONDITION, check, function_of, role_of_function
from tests.infra.templates import Templates, properties, resources, the


@check
def store_is_encrypted_versioned_private_and_kept(t: Templates, s: Settings) -> None:
    bucket = the(t["store"], "AWS::S3::Bucket")
    (encryption,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert bucket["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["Properties"]["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    }
    assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"


@check
def store_takes_tls_only(t: Templates, s: Settings) -> None:
    policy = properties(t["store"], "AWS::S3::BucketPolicy")
    assert policy["Bucket"] == "<Bucket>"
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement == {
        "Action": "s3:*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Resource": ["<Bucket.Arn>", "<Bucket.Arn>/*"],
    }


@check
def store_forgets_old_versions_and_unfinished_uploads_in_a_week(t: Templates, s: Settings) -> None:
    (rule,) = properties(t["store"], "AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert rule == {
        "Status": "Enabled",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
    }


@check
def lever_and_state_are_created_if_absent_and_kept(t: Templates, s: Settings) -> None:
    stack = t["lever"]
    assert not resources(stack, "AWS::SSM::Parameter")
    parameters = the(stack, "Custom::CreateIfAbsent")
    first_values = parameters["Properties"]["Parameters"]
    assert set(first_values) == {names.lever_parameter(s.fleet_name), names.state_parameter(s.fleet_name)}
    assert parameters["Properties"]["ServiceToken"] == "<CreateIfAbsent.Arn>"
    assert parameters["DeletionPolicy"] == parameters["UpdateReplacePolicy"] == "Retain"


@check
def first_values_follow_the_initial_mode(t: Templates, s: Settings) -> None:
    first_values = properties(t["lever"], "Custom::CreateIfAbsent")["Parameters"]
    percentage = {"spot-armed": "0", "on-demand-pinned": "100"}[s.initial_mode]
    assert first_values[names.lever_parameter(s.fleet_name)] == percentage
    assert loads(first_values[names.state_parameter(s.fleet_name)]) == State(Mode(s.initial_mode))


@check
def lever_function_may_create_the_two_parameters_only(t: Templates, s: Settings) -> None:
    paths = (names.lever_parameter(s.fleet_name), names.state_parameter(s.fleet_name))
    expected = {("ssm:PutParameter", f"arn:aws:ssm:{ACCOUNT}:parameter{path}", NO_CONDITION) for path in paths}
    assert role_of_function(t, "CreateIfAbsent") == expected
    assert function_of(t, "CreateIfAbsent")["Handler"] == "lambdas.resources.create_if_absent.handler"
