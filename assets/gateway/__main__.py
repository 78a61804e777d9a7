"""`python -m gateway`: the process of one task. Its settings are one JSON text in its environment."""

import asyncio
import functools
import gc
import logging
import os
import time

import boto3
import uvloop

from fleet.core import names
from gateway import boxes, targets
from gateway.authorize import Bearer, Signed
from gateway.config import load
from gateway.memory import MemoryStore, Store
from gateway.service import Gateway
from gateway.store import DynamoStore, StoreError
from gateway.voice import Voice

START_SECONDS, AGAIN_SECONDS = 60.0, 0.5  # for the store's first word


async def main() -> None:
    """Serve until told to go."""
    config = load(os.environ[names.ENV_GATEWAY])
    store = DynamoStore(config.table) if config.table else MemoryStore()
    voice = Voice(functools.partial(_object, config.modelfile) if config.modelfile else None)
    fallback = config.gateway.fallback
    key = Signed(fallback.sign_as) if fallback.sign_as else Bearer(fallback.key_secret)
    cloud = targets.Cloud(config, voice, key)
    gpu = targets.Gpu(config, boxes.healthy(config.target_group) if config.target_group else None)
    gateway = Gateway(config, store=store, gpu=gpu, cloud=cloud, pepper=await pepper(store))
    following = asyncio.create_task(voice.follow())
    await gateway.run()
    following.cancel()


async def pepper(store: Store) -> bytes:
    """The addresses' key. A cold first call (names, TLS, the role's keys) takes longer than a request may wait."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            return await store.pepper()
        except StoreError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(AGAIN_SECONDS)


def _object(place: str) -> str:
    bucket, _, key = place.partition("/")
    found = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return str(found.decode("utf-8", "replace"))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    gc.freeze()  # what is loaded stays: collections that looked through it took up to 6.6 ms
    uvloop.run(main())
