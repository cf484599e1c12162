from motet_serve.http.limits import ServingLimits


def test_a_body_is_counted_in_mebibytes():
    assert ServingLimits(max_body_mb=0.5).max_body_bytes == 524_288
