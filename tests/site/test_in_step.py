"""What is committed of the site is what the site makes of the chapters."""


def test_every_notebook_for_readers_is_the_one_that_its_page_makes(build):
    _, _, wrote = build
    assert wrote == [], "these were out of step, and are not any more: commit them"
