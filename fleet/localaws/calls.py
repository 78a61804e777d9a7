"""What a request asks for: who calls which operation of which service, with what parameters. Parsed once per request.

botocore's service models describe every operation, so none needs code of its own here.
"""

import io
import json
import re
from dataclasses import dataclass, field
from typing import Any

from botocore.model import OperationNotFoundError
from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.exceptions import HTTPException

# Name in a signature -> botocore's name of the service, where they differ.
MODELS = {"monitoring": "cloudwatch", "elasticloadbalancing": "elbv2", "servicequotas": "service-quotas"}
# Name in a signature -> prefix of IAM actions, where they differ.
IAM_PREFIXES = {"monitoring": "cloudwatch"}

CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")


@dataclass(frozen=True)
class Call:
    """One API call. `service` is the prefix of its IAM actions, `operation` the API's own name ("" if unknown)."""

    access_key: str
    region: str
    service: str
    operation: str
    parameters: dict[str, Any] = field(default_factory=dict)
    model: OperationModel | None = None
    protocol: str = ""

    def resources(self) -> dict[str, Any]:
        """The parameters that name resources: what a log line needs to be matched with a grant."""
        return {
            key: value
            for key, value in self.parameters.items()
            if re.search(r"(Name|Names|Arn|ARN|Id|Ids|Key|Keys|Bucket|Namespace|Path)s?$", key)
            and isinstance(value, str | list)
        }

    def answer(self, result: Any) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a result (a dict in the API's own names) or of an exception."""
        if self.model is None:
            raise TypeError(f"{self.service}:{self.operation} has no model to answer with")
        serializer = get_serializer_class(str(self.model.service_model.service_name), self.protocol)
        response = serializer(operation_model=self.model).serialize(result)
        body = response["body"]
        return response["status_code"], dict(response["headers"]), body.encode() if isinstance(body, str) else body


def parse(environ: dict[str, Any]) -> Call | None:
    """The call that a WSGI request makes; None where it is not signed. Leaves the body readable for moto."""
    signature = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    if not signature:
        return None
    access_key, region, signing_name = signature.groups()
    service = IAM_PREFIXES.get(signing_name, signing_name)
    model = get_service_model(MODELS.get(signing_name, signing_name))
    request = Request(_with_body(environ) if signing_name != "s3" else {**environ, "wsgi.input": io.BytesIO()})
    operation, path_parameters = _operation(model, request)
    if operation is None:
        return Call(access_key, region, service, "")
    protocol = determine_request_protocol(model, request.content_type)
    parameters = (
        dict(path_parameters) if signing_name == "s3" else _parameters(operation, protocol, request, path_parameters)
    )
    return Call(access_key, region, service, str(operation.name), parameters, operation, protocol)


def _with_body(environ: dict[str, Any]) -> dict[str, Any]:
    """A copy of the request for us to read; the original's body is put back for moto."""
    length = environ.get("CONTENT_LENGTH")
    body = environ["wsgi.input"].read(int(length)) if length else b""
    environ["wsgi.input"] = io.BytesIO(body)
    return {**environ, "wsgi.input": io.BytesIO(body)}


def _operation(model: ServiceModel, request: Request) -> tuple[OperationModel | None, dict[str, Any]]:
    try:
        operation, path_parameters = get_service_router(str(model.service_name)).match(request)
    except (HTTPException, NotImplementedError, OperationNotFoundError):
        return None, {}
    return operation, dict(path_parameters)


def _parameters(
    operation: OperationModel, protocol: str, request: Request, path_parameters: dict[str, Any]
) -> dict[str, Any]:
    parsed = PROTOCOL_PARSERS[protocol](operation).parse(
        {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": request.get_data(parse_form_data=True) or b"",
            "url_path": request.path,
            "url_params": path_parameters,
        }
    )
    plain: dict[str, Any] = json.loads(json.dumps(parsed, default=str))
    return plain
