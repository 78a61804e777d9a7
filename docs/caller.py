"""A caller that survives a reclaim: it appends and goes on after a clean break. `python caller.py URL KEY`."""

import sys
import time

from openai import APIError, APIStatusError, OpenAI


def ask(client: OpenAI, question: str, model: str, tries: int = 5) -> str:
    """The whole answer, however many boxes it takes."""
    messages, answer = [{"role": "user", "content": question}], ""
    for _ in range(tries):
        so_far = [{"role": "assistant", "content": answer}] if answer else []
        try:
            for chunk in client.chat.completions.create(model=model, messages=[*messages, *so_far], stream=True):
                if chunk.choices:
                    answer += chunk.choices[0].delta.content or ""
            return answer
        except APIStatusError as error:  # nobody can go on now: the gateway says when to come back
            if error.status_code != 503:
                raise
            time.sleep(float(error.response.headers.get("retry-after", "5")))
        except APIError as error:
            if error.code == "nobody_answers":  # the same, told to who had waited for his first token
                time.sleep(error.body["retry_after_seconds"])
            elif error.code != "SPOT_PREEMPTION":  # a clean break in mid-answer: append, and ask for the rest
                raise
    raise TimeoutError("no box stayed long enough")


if __name__ == "__main__":
    sys.stdout.write(ask(OpenAI(base_url=sys.argv[1], api_key=sys.argv[2]), "hello", "house-model:31b-q4") + "\n")
