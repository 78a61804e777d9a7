"""What an answer takes: of each card alone, as measured, and of the cloud model. Drills and demo have it here."""

import math
from dataclasses import dataclass

# Of the answer that was measured, the median one. Its tokens were not counted: what a box takes hangs on the product.
ANSWER_TOKENS = 150
PROMPT_TOKENS, PROMPT_SECONDS = 420, 0.21  # of a primed box: half a millisecond a token
P95_SECONDS, MEDIAN_SECONDS = 13.5, 9.4  # on an A10G; of a normal distribution, 95 % lie below 1.645
SPREAD = math.log(P95_SECONDS / MEDIAN_SECONDS) / 1.645  # of the logarithm of a length
CLOUD_SECONDS = (1.0, 6.0)  # the fallback's answer


@dataclass(frozen=True)
class Card:
    """One GPU, one request in flight."""

    name: str
    answer_seconds: float  # the median, alone, its prompt included

    @property
    def token_seconds(self) -> float:
        """From one token to the next."""
        return (self.answer_seconds - PROMPT_SECONDS) / ANSWER_TOKENS

    @property
    def prompt_token_seconds(self) -> float:
        """For one token of a prompt."""
        return PROMPT_SECONDS / PROMPT_TOKENS


A10G, L4 = Card("A10G", MEDIAN_SECONDS), Card("L4", 13.9)
BY_FAMILY = {"g5": A10G, "g6": L4}


def card_of(instance_type: str) -> Card:
    """The card of a type; of one that was not measured, the slower of those that were."""
    return BY_FAMILY.get(instance_type.partition(".")[0], L4)
