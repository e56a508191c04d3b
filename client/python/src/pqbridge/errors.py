"""What a request can fail with: one class for each code and meaning of the protocol."""

from __future__ import annotations

from collections.abc import Mapping


class PQError(Exception):
    """The root of all errors of this package.

    code is the number of the protocol, 0 for an error of the client itself; reason a word of the
    protocol, or ""; unknown says that the request may have been carried out; is_passing that the
    same request may succeed later.
    """

    code = 0
    unknown = False
    is_passing = False

    def __init__(self, text: str, *, code: int | None = None, reason: str = "", unknown: bool = False) -> None:
        super().__init__(text)
        self.text, self.reason = text, reason
        self.code = self.code if code is None else code
        self.unknown = self.unknown or unknown

    def __str__(self) -> str:
        return f"{self.text} ({self.code})" if self.code else self.text


class BadRequestError(PQError):
    """400: the request is wrong, and would be wrong every time."""

    code = 400


class BadArgumentError(BadRequestError, ValueError):
    """The client refused to send the request: the text says what would be right."""


class NotFoundError(PQError):
    """404: there is no such item, job or schedule."""

    code = 404


class LeaseLostError(PQError):
    """409: the item is settled, somebody else's, or in another state than the request needs."""

    code = 409


class LeasedError(PQError):
    """409: the item is leased, and can be neither moved nor redriven."""

    code = 409


class JoinedError(PQError):
    """409: the joiner of a push does not wait for members, or not any more."""

    code = 409


class JoinsError(PQError):
    """409: the job waits for its members and cannot be moved, or too many joins have members to purge."""

    code = 409


class TooLargeError(PQError):
    """413: a message, batch or item exceeds a limit, which the text names."""

    code = 413


class OverloadedError(PQError):
    """429: not run; something is full or at a limit. Try again, more slowly."""

    code, is_passing = 429, True


class InternalError(PQError):
    """500: the service or the stored data is at fault."""

    code = 500


class UnavailableError(PQError):
    """503: not run, or a request that only reads has no reply. Try again."""

    code, is_passing = 503, True


class NoBridgeError(PQError):
    """No bridge listens on the subject."""

    is_passing = True


class BadReplyError(PQError):
    """Something other than a bridge replied, such as a stream that captures the subject."""


class NotSentError(PQError):
    """The request was certainly not sent: the connection is away, closed, or may not send it."""

    is_passing = True


class DeniedError(NotSentError):
    """The NATS server refused the request or its inbox, as the connection lacks a permission, or the login."""

    is_passing = False


class UnknownOutcomeError(PQError):
    """The request may or may not have been carried out: the bridge said so, or no reply came."""

    unknown = is_passing = True


class NoHeartbeatError(UnknownOutcomeError):
    """The bridge no longer confirms that a request waits: it, or the connection, may be gone."""


class NotDoneError(PQError, TimeoutError):
    """Queue.call waits no longer for its job, which is pushed and goes on: see Queue.result.

    id is the id of the job; state what the bridge said last, "" if it did not answer. Then
    __cause__ is the error that says why.
    """

    def __init__(self, text: str, *, id: str = "", state: str = "") -> None:
        super().__init__(text)
        self.id, self.state = id, state


class ChainError(PQError):
    """A chain of jobs branches or runs again, so nobody can say which job is its last."""


class JobFailedError(PQError):
    """The job became a dead letter. cause, reason and error are as in its JobResult."""

    def __init__(self, id: str, cause: str, reason: str, error: str, deliveries: int) -> None:
        times = "1 delivery" if deliveries == 1 else f"{deliveries} deliveries"
        super().__init__(f"job {id} failed after {times}: {cause}", reason=reason)
        self.args = (id, cause, reason, error, deliveries)  # for pickle, which begins with them
        self.id, self.cause, self.error, self.deliveries = id, cause, error, deliveries


def check_whole(name: str, value: int, least: int, most: int) -> int:
    """Return an argument that is a whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadArgumentError(f"{name} {value!r:.100}: want a whole number from {least} to {most}")
    return value


def check_flag(name: str, value: bool | None) -> bool:
    """Return an argument that is true, false or absent."""
    if value is not None and not isinstance(value, bool):
        raise BadArgumentError(f"{name} {value!r:.100}: want True or False")
    return bool(value)


def check_text(name: str, value: str, least: int = 0, most: int = 0) -> str:
    """Return an argument that is a text, of so many bytes unless most is 0."""
    if not isinstance(value, str) or (most and not least <= len(value.encode(errors="replace")) <= most):
        raise BadArgumentError(f"{name} {value!r:.100}: want a string{f' of {least} to {most} bytes' if most else ''}")
    return value


# The first class with a code is for it, as LeaseLostError is for 409.
_BY_CODE = {kind.code: kind for kind in reversed(PQError.__subclasses__()) if kind.code}
_BY_REASON = {"leased": LeasedError, "joined": JoinedError, "joins": JoinsError}


def error_of(headers: Mapping[str, str]) -> PQError | None:
    """Return the error that a reply says in its headers, or None if the request succeeded."""
    text, code = headers.get("Nats-Service-Error", ""), headers.get("Nats-Service-Error-Code", "")
    if not text and not code:
        return None
    if code and not code.isdecimal():
        return BadReplyError(f"not the reply of a bridge: an error with the code {code!r}", unknown=True)
    return error_for(int(code or 0), headers.get("Pq-Reason", ""), text, headers.get("Pq-Outcome") == "unknown")


def error_for(code: int, reason: str, text: str, unknown: bool = False) -> PQError:
    """Return the error with a code and reason of the protocol."""
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, PQError)
    kind = UnknownOutcomeError if unknown else kind
    return kind(text, code=code, reason=reason, unknown=unknown)
