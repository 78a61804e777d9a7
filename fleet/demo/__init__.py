"""`make demo`: the fleet on an embedded AWS, from nothing: deployed by the real CDK CLI, robbed of its GPU, recovered.

Read in order: `__main__` (the sequence), `nights` (the recorded times), `acts` (what happens), `callers`, `screen`.
"""
