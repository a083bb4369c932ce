# SPDX-License-Identifier: Apache-2.0
"""Missing, malformed, changed, foreign and revoked credentials, and administration without permission."""

import secrets
import time

import calls
from attack import attack
from attacks_api import METHODS
from target import ATTACKER, NEIGHBOUR
from wire import encode, first

OPERATIONS_METHODS = ("GetOverview", "SetIntake", "SetDevicePause", "ListAccounts", "GetConfig", "ListHosts", "SetHostIntake")
ADMIN_METHODS = ("CreateTenant ListTenants GetTenant UpdateTenant DeleteTenant CreateToken ListTokens RevokeToken GetUsage ReadAudit").split()


def api_with(session, *metadata):
    return calls.Api(session.target.address, metadata, timeout=5)


def bad_credentials(session):
    token, ticket = session.target.tokens[ATTACKER], session.target.ticket()
    body, tag = ticket[:-10], ticket[-10:]
    yield "none", []
    yield "an empty one", [("authorization", "")]
    yield "another scheme", [("authorization", "Basic cm9vdDpyb290")]
    yield "no token", [("authorization", "Bearer ")]
    yield "a made up token", [("authorization", "Bearer hpvm_" + secrets.token_hex(32))]
    yield "a token cut short", [("authorization", "Bearer " + token[:-1])]
    yield "a token with more", [("authorization", f"Bearer {token}0")]
    yield "a changed token", [("authorization", "Bearer " + token[:-1] + ("0" if token[-1] != "0" else "1"))]
    yield "a token in capitals", [("authorization", "Bearer " + token.upper())]
    yield "two tokens", [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")]
    yield "two in one", [("authorization", f"Bearer {token}, Bearer {token}")]
    yield "a changed ticket", [("authorization", "Bearer " + body + tag[::-1])]
    yield "half a ticket", [("authorization", "Bearer " + ticket[:len(ticket) // 2])]
    yield "a very long one", [("authorization", "Bearer hpvm_" + "a" * 6000)]
    yield "only a tenant's name", [("hpvm-tenant", NEIGHBOUR)]
    yield "a quote", [("authorization", "Bearer hpvm_' OR 1=1 --")]


@attack("T28", group="credentials")
def every_method_without_the_right_credential(session):
    complaints = []
    for what, metadata in bad_credentials(session):
        # Refusals are counted by address, so that guessing becomes slow; that too is a refusal.
        api = api_with(session, *metadata)
        for service, methods in ((calls.SERVICE, METHODS), (calls.ADMIN, ADMIN_METHODS), (calls.OPERATIONS, OPERATIONS_METHODS)):
            for method in methods:
                answer = api.call(method, b"", service=service)
                if answer.code not in ("UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"):
                    complaints.append(f"{method} with {what}: {answer}")
        api.close()
    return complaints


@attack("T28", group="credentials")
def a_user_who_acts_for_another(session):
    complaints = []
    api = api_with(session, ("authorization", f"Bearer {session.target.tokens[ATTACKER]}"), ("hpvm-tenant", NEIGHBOUR))
    for method in METHODS:
        # A message that cannot be parsed is refused before the caller is authenticated.
        answer = api.call(method, encode(f2=b"" if method == "SubmitMany" else session.target.job_id))
        session.look_for_secret(answer.message.encode() + b"".join(answer.replies), method)
        if answer.code != "PERMISSION_DENIED" and answer.code != "NOT_FOUND":
            complaints.append(f"{method} for another: {answer}")
    api.close()
    return complaints


@attack("T28", group="credentials")
def administration_by_a_user(session):
    """A user tries to manage tenants, tokens, quotas and the audit of others, and more than its own."""
    admin, complaints = session.target.admin, []
    tries = [("CreateTenant", encode(f2=encode(f1="mine"))), ("ListTenants", b""), ("GetTenant", encode(f2=NEIGHBOUR)),
             ("UpdateTenant", encode(f2=NEIGHBOUR, f3=1)), ("UpdateTenant", encode(f2=ATTACKER, f5=10000)),
             ("CreateToken", encode(f2=NEIGHBOUR, f3=1)), ("CreateToken", encode(f3=3)), ("CreateToken", encode(f3=1)), ("ListTokens", encode(f2=NEIGHBOUR)),
             ("RevokeToken", encode(f2="tok-1")), ("GetUsage", encode(f2=NEIGHBOUR)), ("ReadAudit", b""), ("ReadAudit", encode(f3=NEIGHBOUR))]
    for method, message in tries:
        answer = session.api.call(method, message, service=calls.ADMIN)
        if answer.ok or answer.code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE"):
            complaints.append(f"{method} {message!r}: {answer}")
    for method, message in (("SetIntake", encode(f2=1, f3="mine")), ("ListHosts", b""), ("SetHostIntake", encode(f2="lab-a", f3=3))):
        answer = session.api.call(method, message, service=calls.OPERATIONS)
        if answer.code != "PERMISSION_DENIED":
            complaints.append(f"{method}: {answer}")
    shown = session.api.call("GetOverview", encode(f2=1000), service=calls.OPERATIONS)
    if not shown.ok or NEIGHBOUR.encode() in shown.reply:
        complaints.append(f"GetOverview shows a neighbour: {shown}")
    weight = first(first(admin.call("GetTenant", encode(f2=ATTACKER), service=calls.ADMIN).reply, 1), 5, 100)
    if weight not in (0, 100):
        complaints.append(f"the attacker's weight is {weight}")
    return complaints


@attack("T28", group="credentials")
def a_token_that_was_revoked_or_whose_tenant_is_disabled(session):
    admin, complaints = session.target.admin, []
    admin.call("CreateTenant", encode(f2=encode(f1="former")), service=calls.ADMIN)
    answer = admin.call("CreateToken", encode(f2="former", f3=1), service=calls.ADMIN)
    token, secret = first(answer.reply, 1), first(answer.reply, 2).decode()
    api = api_with(session, ("authorization", f"Bearer {secret}"))
    if not api.call("ServerInfo", b"").ok:
        complaints.append("a new token does not work")
    revoked = admin.call("RevokeToken", encode(f2=first(token, 1)), service=calls.ADMIN)
    if not revoked.ok or api.call("ServerInfo", b"").ok:
        complaints.append("a revoked token works")
    secret = first(admin.call("CreateToken", encode(f2="former", f3=1, f5=1_000_000_000), service=calls.ADMIN).reply, 2).decode()
    short = api_with(session, ("authorization", f"Bearer {secret}"))
    time.sleep(1.2)
    if short.call("ServerInfo", b"").ok:
        complaints.append("an expired token works")
    secret = first(admin.call("CreateToken", encode(f2="former", f3=1), service=calls.ADMIN).reply, 2).decode()
    other = api_with(session, ("authorization", f"Bearer {secret}"))
    admin.call("UpdateTenant", encode(f2="former", f3=1), service=calls.ADMIN)
    answer = other.call("ListJobs", b"")
    if answer.ok:
        complaints.append("a disabled tenant's token works")
    return complaints


@attack("T32", group="credentials")
def secrets_are_nowhere_to_be_read(session):
    """No token appears in the log, the state folder or a command line."""
    complaints, target = [], session.target
    needles = [token.encode() for token in target.tokens.values()] + [target.ticket().encode()]
    for path in [target.log, *(path for path in target.state.rglob("*") if path.is_file())]:
        data = path.read_bytes()
        if any(needle in data or needle[5:] in data for needle in needles):
            complaints.append(f"{path.name} contains a token")
    return complaints


@attack("T28", group="credentials")
def guesses_become_slow(session):
    """A thousand tokens from one address: soon they are refused unread, while the right token still works."""
    api = api_with(session, ("authorization", "Bearer hpvm_" + "0" * 64))
    begin, codes = time.monotonic(), {}
    while time.monotonic() - begin < 1.0:
        code = api.call("ServerInfo", b"").code
        codes[code] = codes.get(code, 0) + 1
    session.note(f"bad tokens in a second: {codes}")
    api.close()
    return session.check_tenant_works()
