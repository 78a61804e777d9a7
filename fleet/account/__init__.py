"""The operator's access to AWS: calls, and each failure in one sentence with its remedy."""
