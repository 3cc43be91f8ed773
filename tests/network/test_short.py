"""Three processes over mTLS: the one run of a real network that every run of the tests has."""

from network.harness import Study


def test_three_processes_find_the_numbers_of_the_simulation(tmp_path):
    with Study(tmp_path, [[0, 1], [1, 2]], n_parties=3, adding="differences", max_iter=20, secure=True) as study:
        study.start()
        study.check()
        assert all(study.told(number, "Here") for number in range(3))
        assert not any(study.told(number, "Problem") for number in range(3)), study.report()
        assert max(line["iteration"] for line in study.told(0, "Progress")) == 20
