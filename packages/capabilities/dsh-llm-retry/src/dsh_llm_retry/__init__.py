"""Retries failed model requests by the policy of their provider."""
