"""Whether one tenant can learn another tenant's prompts: from the cache's counts, and from the clock.

Run tenant_timing.py by itself for the long version of the second test (docs/benchmarks/server.md).
"""

import pytest

import tenant_timing
from conftest import MODEL

STORY = "Once upon a time there was a small house and a big tree and a small dog. " * 8


@pytest.fixture(scope="module")
def two_keys():
    from conftest import Server
    s = Server("serve", MODEL, "--port", "0", "--api-key", "victim", "--api-key", "prober")
    yield s
    assert s.stop() == 0, s.output()


def cached(client, prompt, **extra):
    usage = client.completions.create(model="model", prompt=prompt, max_tokens=1, extra_body=extra).usage
    assert usage.model_extra["cache_read_tokens"] == usage.prompt_tokens_details.cached_tokens
    return usage.prompt_tokens_details.cached_tokens


def test_hits_end_at_the_key(two_keys):
    victim, prober = (two_keys.client(api_key=key) for key in ("victim", "prober"))
    assert cached(victim, STORY) == 0
    assert cached(victim, STORY) > 64
    # Neither a salt of the prober's choice nor another user name of his reaches the victim's prefixes.
    for extra in ({}, {"cache_salt": ""}, {"cache_salt": "victim"}, {"cache_salt": "key-1"}, {"cache_salt": "\x01"}):
        assert cached(prober, STORY, **extra) == 0, extra
    reply = prober.post("/cache/pins", body={"prompt": STORY, "cache_salt": "victim, again"}, cast_to=object)
    assert reply["cached_tokens"] == 0
    # A tenant drops only its own blocks: the victim's hit remains after the prober has unpinned and filled.
    prober.delete("/cache/pins", cast_to=object)
    assert cached(victim, STORY) > 64
    # A salt also separates the users of one key.
    assert cached(victim, STORY, cache_salt="one user") == 0
    assert cached(victim, STORY, cache_salt="another user") == 0
    assert cached(victim, STORY, cache_salt="one user") > 64


@pytest.mark.wide
def test_the_clock_tells_nothing_between_tenants(two_keys):
    """40 pairs. Without a difference, the AUC is within 5 standard errors of 0.5 except for 6 runs in 10 million,
    however busy the machine is: the distribution of the times does not matter, and their order is random. With a
    difference, it was at least 0.94 with a load of 16 on 2 cores: 0.75 is 5 standard errors below that."""
    n = 40
    sent, fresh = tenant_timing.measure(two_keys.port, "victim", "victim", n, 400, "control")
    assert tenant_timing.auc(sent, fresh) > 0.75, (sent, fresh)
    sent, fresh = tenant_timing.measure(two_keys.port, "victim", "prober", n, 250, "between")
    assert abs(tenant_timing.auc(sent, fresh) - 0.5) < 5 * tenant_timing.standard_error(n), (sent, fresh)


def test_the_auc():
    assert tenant_timing.auc([1, 2], [3, 4]) == 1 and tenant_timing.auc([3, 4], [1, 2]) == 0
    assert tenant_timing.auc([1, 2, 3], [2]) == 0.5 and tenant_timing.auc([1, 1], [1]) == 0.5
    assert tenant_timing.auc([1, 3], [2, 4]) == 0.75
    # All choices of 3 of 6 times are equally likely: the variance must equal the formula.
    import itertools
    import statistics
    scores = [tenant_timing.auc(s, set(range(6)) - set(s)) for s in itertools.combinations(range(6), 3)]
    assert abs(statistics.pstdev(scores) - tenant_timing.standard_error(3)) < 1e-12
