"""Whose an address is, as callers without a key are counted."""

import functools
import ipaddress

IPV6_SITE_BITS = 64  # one subscriber has at least as many addresses


@functools.lru_cache(10_000)  # addresses that ask again and again
def site(address: str) -> str:
    """The address as it is counted: IPv6 by /64, IPv4 inside IPv6 as IPv4; raises ValueError."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, IPV6_SITE_BITS), strict=False))
    return str(found)
