from motet_serve.http.metrics import ServerMetrics


def test_the_text_says_what_was_asked_and_what_became_of_it():
    metrics = ServerMetrics("motet_verifier_")
    metrics.answered(3, 0.02)
    metrics.answered(5, 0.2)
    metrics.refused(422, "verifier_unreadable")
    metrics.batch(8, 0.1)
    lines = metrics.text(queue=7).splitlines()
    assert {
        'motet_verifier_requests_total{status="200"} 2.0',
        'motet_verifier_requests_total{status="422"} 1.0',
        'motet_verifier_faults_total{cause="verifier_unreadable"} 1.0',
        "motet_verifier_answers_total 8.0",
        "motet_verifier_queue_answers 7.0",
        "motet_verifier_request_seconds_sum 0.22",
        'motet_verifier_batch_answers_bucket{le="4.0"} 0.0',
        'motet_verifier_batch_answers_bucket{le="8.0"} 1.0',
        "motet_verifier_batch_seconds_count 1.0",
        "# TYPE motet_verifier_batch_seconds histogram",
    } <= set(lines)


def test_every_figure_has_its_kind_once():
    kinds = [
        line
        for line in ServerMetrics("motet_verifier_").text(0).splitlines()
        if line.startswith("# TYPE")
    ]
    assert len(kinds) == len(set(kinds)) == 7
