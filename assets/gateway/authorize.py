"""How a call to the fallback proves whose it is: a key from Secrets Manager, or the task's own role."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

# Headers of one call, by its URL and payload; and whether the last ones were refused: then what is kept is read anew.
Authorize = Callable[[str, bytes, bool], Awaitable[Mapping[str, str]]]


class Bearer:
    """A secret's key as bearer, read when it is first needed and again when it was refused; no secret, no key."""

    def __init__(self, secret: str) -> None:
        self._secret, self._key = secret, ""

    async def __call__(self, url: str, payload: bytes, again: bool) -> Mapping[str, str]:
        if self._secret and (again or not self._key):
            self._key = await asyncio.to_thread(self._read)
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _read(self) -> str:
        client = botocore.session.get_session().create_client("secretsmanager")
        return str(client.get_secret_value(SecretId=self._secret)["SecretString"]).strip()


class Signed:
    """Signed with the role of the task (signature version 4), for endpoints of AWS such as Bedrock's."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._session = botocore.session.get_session()

    async def __call__(self, url: str, payload: bytes, again: bool) -> Mapping[str, str]:
        return await asyncio.to_thread(self._signed, url, payload)

    def _signed(self, url: str, payload: bytes) -> Mapping[str, str]:
        request = AWSRequest("POST", url, {"Content-Type": "application/json"}, payload)
        credentials = self._session.get_credentials().get_frozen_credentials()
        SigV4Auth(credentials, self._service, self._session.get_config_variable("region")).add_auth(request)
        return dict(request.headers.items())
