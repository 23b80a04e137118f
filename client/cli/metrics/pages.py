"""The exporter's pages: `/metrics`, and `/healthz` for service managers that restart an unhealthy daemon."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final

from .scrapes import Scrapes
from .server import HttpRequest, Response

BEARER: Final = "bearer "


class Pages:
    """Answers requests. `token`: the token that a request has to carry, None for no check."""

    def __init__(self, scrapes: Scrapes, token: str | None) -> None:
        self._scrapes = scrapes
        self._token = token

    async def answer(self, request: HttpRequest) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return Response.text(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD", Allow="GET, HEAD")
        if request.path == "/healthz":
            return await self._health(request)
        if request.path != "/metrics":
            return Response.text(HTTPStatus.NOT_FOUND, "the paths are /metrics and /healthz")
        if not self._may_read(request):
            return Response.text(HTTPStatus.UNAUTHORIZED, "a bearer token is needed", WWW_Authenticate="Bearer")
        kind, text = await self._scrapes.metrics(request.headers.get("accept", ""))
        return Response(HTTPStatus.OK, text, kind)

    async def _health(self, request: HttpRequest) -> Response:
        """Every client may read the state; only readers of the metrics see the reasons, which name ops and lines."""
        state, reasons = await self._scrapes.health()
        status = HTTPStatus.OK if state == "healthy" else HTTPStatus.SERVICE_UNAVAILABLE
        return Response.text(status, "\n".join([state, *(reasons if self._may_read(request) else ())]))

    def _may_read(self, request: HttpRequest) -> bool:
        given = request.headers.get("authorization", "")
        if self._token is None:
            return True
        is_bearer = given[: len(BEARER)].lower() == BEARER
        return is_bearer and hmac.compare_digest(given[len(BEARER) :].encode(), self._token.encode())
