"""Custom resource: a DynamoDB table where there is none; one that stands is taken up with everything in it.

`AWS::DynamoDB::Table` would refuse a table that a stack before it has kept.
"""

import time
from typing import Any

import boto3

from lambdas.resources.answer import answered

WAIT_SECONDS, WAITS = 2, 20  # a new table takes seconds
BACKUP_WAITS = 120  # its backups may take longer: with the table's, within the function's 300 s


def work(event: dict[str, Any]) -> None:
    """Create it on demand, with expiry and point-in-time recovery; both are set on a table that stands, too."""
    if event["RequestType"] == "Delete":
        return
    wanted = event["ResourceProperties"]
    table, partition, sort, expiry = (wanted[name] for name in ("Table", "PartitionKey", "SortKey", "Expiry"))
    client = boto3.client("dynamodb")
    try:
        client.create_table(
            TableName=table,
            KeySchema=[
                {"AttributeName": partition, "KeyType": "HASH"},
                {"AttributeName": sort, "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in (partition, sort)],
            BillingMode="PAY_PER_REQUEST",
        )
    except client.exceptions.ResourceInUseException:
        print(f"{table} exists and is kept")  # noqa: T201  the function's log
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": WAIT_SECONDS, "MaxAttempts": WAITS})
    if client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED":
        client.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": expiry})
    _recoverable(client, table)


def _recoverable(client: Any, table: str) -> None:
    """Point-in-time recovery, once AWS has made the backups of a new table."""
    # aws-behaviours: backups-after-table
    for waits in reversed(range(BACKUP_WAITS)):
        try:
            client.update_continuous_backups(
                TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
            return
        except client.exceptions.ContinuousBackupsUnavailableException:
            if not waits:
                raise
            time.sleep(WAIT_SECONDS)


handler = answered(work)
