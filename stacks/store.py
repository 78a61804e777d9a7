"""The model store: one bucket for the engine, the model's source files and the cache of built blobs. Kept on delete."""

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3

from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack, accept

OLD_VERSION_DAYS = 7  # time to notice a wrong publish and go back
UNFINISHED_UPLOAD_DAYS = 7  # a broken publish can be resumed for a week


class StoreStack(BaseStack):
    """The bucket. `fleetctl publish` fills it before the group exists."""

    def __init__(self, app: cdk.App, settings: Settings) -> None:
        super().__init__(app, "store", settings)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            versioned=True,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            removal_policy=cdk.RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=cdk.Duration.days(OLD_VERSION_DAYS),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(UNFINISHED_UPLOAD_DAYS),
                )
            ],
        )
        accept(self.bucket, "AwsSolutions-S1", "Files of a model, read by the fleet's own boxes alone")
        cdk.CfnOutput(
            self, names.OUTPUT_BUCKET, value=self.bucket.bucket_name, description="Where `fleetctl publish` puts files"
        )
