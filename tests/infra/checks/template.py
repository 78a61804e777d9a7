"""What a box is launched with."""

import re

from fleet.config import box_config
from fleet.config.settings import Settings
from tests.infra.checks.shared import check, launch_data
from tests.infra.templates import Templates, properties


@check
def metadata_service_takes_tokens_only_and_one_hop(t: Templates, s: Settings) -> None:
    assert launch_data(t)["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}


@check
def a_template_tried_without_its_overrides_is_of_the_first_pool(t: Templates, s: Settings) -> None:
    assert launch_data(t)["InstanceType"] == s.pools[0]


@check
def root_disk_is_encrypted_gp3_and_goes_with_the_box(t: Templates, s: Settings) -> None:
    (disk,) = launch_data(t)["BlockDeviceMappings"]
    assert disk["DeviceName"] == "/dev/xvda"
    ebs = {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": s.root_volume_gib, "DeleteOnTermination": True}
    assert disk["Ebs"] == ebs


@check
def a_box_that_shuts_down_is_terminated(t: Templates, s: Settings) -> None:
    assert launch_data(t)["InstanceInitiatedShutdownBehavior"] == "terminate"


@check
def a_box_has_a_public_address_the_box_group_and_its_role(t: Templates, s: Settings) -> None:
    (interface,) = launch_data(t)["NetworkInterfaces"]
    groups = ["<BoxGroup.GroupId>"]
    assert interface == {"AssociatePublicIpAddress": True, "DeviceIndex": 0, "Groups": groups}
    assert launch_data(t)["IamInstanceProfile"] == {"Arn": "<TemplateProfile.Arn>"}
    assert properties(t["group"], "AWS::IAM::InstanceProfile")["Roles"] == ["<BoxRole>"]


@check
def image_is_the_deep_learning_parameter_when_no_id_is_pinned(t: Templates, s: Settings) -> None:
    (reference,) = re.fullmatch("<(.+)>", launch_data(t)["ImageId"]).groups()  # type: ignore[union-attr]
    parameter = t["group"]["Parameters"][reference]
    assert parameter["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert parameter["Default"] == (
        "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
    )


@check
def user_data_fits_and_names_the_bundle_by_content_hash(t: Templates, s: Settings) -> None:
    text = launch_data(t)["UserData"]
    # The written-out references are shorter than what stands there in the end: 63 a bucket, 200 an ARN.
    longest = re.sub("<[A-Za-z:.0-9]+>", "x" * 200, text)
    assert len(longest.encode()) <= 16_384
    assert re.search(
        rf"'s3://cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2/{s.fleet_name}/[0-9a-f]{{64}}\.zip'", text
    )
    assert text.startswith("#!/bin/bash\n")


@check
def user_data_carries_the_boxs_own_settings_and_no_others(t: Templates, s: Settings) -> None:
    text = launch_data(t)["UserData"]
    bundle_bucket, bundle_key = re.search("s3://(cdk-[^/]+)/([^']+)", text).groups()  # type: ignore[union-attr]
    config = box_config.box_config(s, bucket="<Bucket>", target_group_arn="<TargetGroup>")
    assert text == box_config.user_data(config, bundle_bucket=bundle_bucket, bundle_key=bundle_key)
    assert not any(address in text for address in s.mail)
