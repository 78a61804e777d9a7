"""A stack as small as the embedded AWS's own tests allow: a group with hooks, a balancer, an alarm, a function."""

from typing import Any

PARAMETER = "/small/lever"
GROUP = "small-group"
ALARM = "small-alarm"
FUNCTION = "small-function"
READS_THE_LEVER = {
    "Effect": "Allow",
    "Action": "ssm:GetParameter",
    "Resource": f"arn:aws:ssm:us-east-2:123456789012:parameter{PARAMETER}",
}

# Reads the lever with the role's own key; a custom resource's request is answered, refused on demand.
CODE = """
import json, urllib.request
import boto3

def handler(event, context):
    print("woken by", event.get("source", event.get("RequestType", "hand")))
    if "ResponseURL" in event:
        refused = event["ResourceProperties"].get("Refuse") == "true"
        answer = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
        answer |= {"Status": "FAILED" if refused else "SUCCESS", "Reason": "asked to refuse",
                   "PhysicalResourceId": "custom", "Data": {"Seen": event["RequestType"]}}
        urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], json.dumps(answer).encode(), method="PUT"))
        return
    return boto3.client("ssm").get_parameter(Name="/small/lever")["Parameter"]["Value"]
"""


def template(
    user_data: str = "IyEvYmluL3NoCg==", lever: Any = None, refuse: bool = False, alarm_lambda: bool = True
) -> dict[str, Any]:
    """The CloudFormation template. `lever` replaces the reference to the stored value."""
    distribution = {
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": {"Ref": "Lever"} if lever is None else lever,
        "SpotAllocationStrategy": "price-capacity-optimized",
    }
    resources: dict[str, Any] = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/24", "AvailabilityZone": "us-east-2a"},
        },
        "Balancer": {
            "Type": "AWS::ElasticLoadBalancingV2::LoadBalancer",
            "Properties": {"Type": "network", "Scheme": "internal", "Subnets": [{"Ref": "Subnet"}]},
        },
        "Targets": {
            "Type": "AWS::ElasticLoadBalancingV2::TargetGroup",
            "Properties": {
                "Protocol": "TCP",
                "Port": 11434,
                "VpcId": {"Ref": "Vpc"},
                "TargetGroupAttributes": [{"Key": "deregistration_delay.timeout_seconds", "Value": "120"}],
            },
        },
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": {"ImageId": "ami-12c6146b", "UserData": user_data}},
        },
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "AutoScalingGroupName": GROUP,
                "MinSize": "1",
                "MaxSize": "2",
                "CapacityRebalance": True,
                "DefaultInstanceWarmup": 60,
                "TargetGroupARNs": [{"Ref": "Targets"}],
                "VPCZoneIdentifier": [{"Ref": "Subnet"}],
                "LifecycleHookSpecificationList": [
                    {
                        "LifecycleHookName": "hold",
                        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                        "HeartbeatTimeout": 1800,
                        "DefaultResult": "ABANDON",
                    }
                ],
                "MixedInstancesPolicy": {
                    "InstancesDistribution": distribution,
                    "LaunchTemplate": {
                        "LaunchTemplateSpecification": {
                            "LaunchTemplateId": {"Ref": "Template"},
                            "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                        },
                        "Overrides": [{"InstanceType": "g6.xlarge"}, {"InstanceType": "g5.xlarge"}],
                    },
                },
            },
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": "small-role",
                "AssumeRolePolicyDocument": {"Statement": []},
                "Policies": [{"PolicyName": "reads", "PolicyDocument": {"Statement": [READS_THE_LEVER]}}],
            },
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": FUNCTION,
                "Handler": "index.handler",
                "Runtime": "python3.12",
                "Timeout": 20,
                "ReservedConcurrentExecutions": 1,
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": CODE},
            },
        },
        "Custom": {
            "Type": "Custom::Check",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Refuse": refuse},
        },
        "Alarm": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "AlarmName": ALARM,
                "ComparisonOperator": "LessThanThreshold",
                "EvaluationPeriods": 12,
                "MetricName": "HealthyHostCount",
                "Namespace": "AWS/NetworkELB",
                "Period": 60,
                "Statistic": "Maximum",
                "Threshold": 1,
                "Dimensions": [{"Name": "LoadBalancer", "Value": {"Fn::GetAtt": ["Balancer", "LoadBalancerFullName"]}}],
            },
        },
        "Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "EventPattern": {"source": ["aws.cloudwatch"], "detail": {"alarmName": [ALARM]}},
                "Targets": [{"Id": "function", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}],
            },
        },
    }
    if alarm_lambda:
        resources["Permission"] = {
            "Type": "AWS::Lambda::Permission",
            "Properties": {
                "Action": "lambda:InvokeFunction",
                "FunctionName": {"Ref": "Function"},
                "Principal": "events.amazonaws.com",
            },
        }
    return {
        "Parameters": {"Lever": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": PARAMETER}},
        "Resources": resources,
        "Outputs": {"Seen": {"Value": {"Fn::GetAtt": ["Custom", "Seen"]}}},
    }
