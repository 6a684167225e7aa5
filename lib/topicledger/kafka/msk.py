"""Sign in to AWS MSK with IAM through Amazon's signer library, the extra `msk`.

The settings name it: `sasl_oauth_token_provider = "topicledger.kafka.msk:token_provider"`.
"""

from __future__ import annotations

import os

from kafka.net.sasl.oauth import AbstractTokenProvider

from topicledger.errors import ClusterError


class _SignedTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Signs a token of 15 minutes for each connection, on this machine; no request is sent for it."""

    def __init__(self, region: str) -> None:
        super().__init__()
        self._region = region

    def token(self) -> str:
        """Return a token, signed with the credentials that botocore finds now."""
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

        token, _ = MSKAuthTokenProvider.generate_auth_token(self._region)
        return str(token)


def token_provider() -> AbstractTokenProvider:
    """Return the provider for the region of this process; raises ClusterError if library or region are missing."""
    try:
        import aws_msk_iam_sasl_signer  # noqa: F401
        from botocore.session import Session
    except ImportError:
        raise ClusterError(
            "topicledger.kafka.msk needs Amazon's signer library wherever a client is made: "
            "pip install 'topicledger[msk]'"
        ) from None
    # botocore itself doesn't read AWS_REGION, which AWS sets in its own services.
    region = os.environ.get("AWS_REGION") or Session().get_config_variable("region")
    if not region:
        raise ClusterError("topicledger.kafka.msk needs the region of the cluster: set AWS_REGION")
    return _SignedTokens(region)
