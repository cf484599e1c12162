from motet.verifier.metrics import Histogram, Metrics


def test_a_histogram_counts_what_is_at_most_each_bound():
    histogram = Histogram((1, 2, 4))
    for value in (1, 1.5, 2, 3, 9):
        histogram.add(value)
    assert [*histogram.lines("x")] == [
        'x_bucket{le="1"} 1',
        'x_bucket{le="2"} 3',
        'x_bucket{le="4"} 4',
        'x_bucket{le="+Inf"} 5',
        "x_sum 16.5",
        "x_count 5",
    ]


def test_the_text_says_what_was_asked_and_what_became_of_it():
    metrics = Metrics()
    metrics.scored(3, 0.02)
    metrics.scored(5, 0.2)
    metrics.refused(422, "verifier_unreadable")
    metrics.batch(8, 0.1)
    lines = metrics.text(queue=7).splitlines()
    assert {
        'motet_verifier_requests_total{status="200"} 2',
        'motet_verifier_requests_total{status="422"} 1',
        'motet_verifier_faults_total{cause="verifier_unreadable"} 1',
        "motet_verifier_answers_total 8",
        "motet_verifier_queue_answers 7",
        "motet_verifier_request_seconds_sum 0.22",
        'motet_verifier_batch_answers_bucket{le="8"} 1',
        "motet_verifier_batch_seconds_count 1",
        "# TYPE motet_verifier_batch_seconds histogram",
    } <= set(lines)


def test_every_figure_has_its_kind_once():
    kinds = [line for line in Metrics().text(0).splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds)) == 7
