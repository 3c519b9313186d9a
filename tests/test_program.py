"""`python -m tf_ecornn program` beside `python program`: nothing tells them apart."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from tf_ecornn.__main__ import main

PACKAGE_ROOT = pathlib.Path(__file__).parents[1]

# Each runs twice, in a folder that holds the files below as well.
PROGRAMS = {
    "names": """
        import __main__, sys
        print(__name__, __file__, __package__, __spec__, __doc__, sys.argv)
        print(sys.path[0], __main__.__dict__ is globals(), __loader__.name)
        print(sorted(k for k in globals() if k != "__annotations__"))
    """,
    "neighbour": "import neighbour; print(neighbour.VALUE, neighbour.__file__)",
    "relative import": "from . import neighbour",
    "no tensorflow": """
        import sys
        print([m for m in ("tensorflow", "keras", "numpy") if m in sys.modules])
    """,
    "exit code": "import sys; print('out'); sys.exit(3)",
    "exit text": "import sys; sys.exit('it went wrong')",
    "exit without a sound": "import os; os._exit(4)",
    "exception": """
        def inner():
            raise ValueError("no")
        inner()
    """,
    "chain": """
        try:
            {}["key"]
        except KeyError as error:
            raise RuntimeError("later") from error
    """,
    "exception of a neighbour": "import neighbour; neighbour.fail()",
    "broken neighbour": "import broken",
    "syntax error": "print('never')\\nx = (1",
    # A shell may have started us with the signal ignored, which is inherited.
    "interrupt": """
        import os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)
    """,
    "own excepthook": """
        import sys, traceback
        def hook(kind, error, tb):
            print("hook", kind, error, len(traceback.extract_tb(tb)))
        sys.excepthook = hook
        1 / 0
    """,
    "arguments": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--report", action="store_true")
        parser.add_argument("--info", action="store_true")
        print(parser.parse_args())
    """,
    "wrong arguments": """
        import argparse
        argparse.ArgumentParser().parse_args()
    """,
    "pickle": """
        import pickle
        class Point:
            pass
        print(type(pickle.loads(pickle.dumps(Point()))) is Point)
    """,
    "at exit": """
        import atexit, threading, time
        WORD = "late"
        def show():
            time.sleep(0.1)
            print(WORD)
        atexit.register(show)
        threading.Thread(target=show).start()
    """,
    "processes": """
        import multiprocessing, sys
        def double(x):
            return 2 * x, __name__
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(double, [1, 2]))
    """,
    "unit tests": """
        import io, unittest
        class Test(unittest.TestCase):
            def test(self):
                self.assertEqual(1, 1)
        if __name__ == "__main__":
            runner = unittest.TextTestRunner(stream=io.StringIO())
            print(unittest.main(argv=["x"], exit=False, testRunner=runner).result)
    """,
    "future": """
        from __future__ import annotations
        def f(x: undefined): pass
        print(f.__annotations__)
    """,
    "no leak of ours": "def f(x: int): pass\\nprint(f.__annotations__)",
}

FILES = {
    "neighbour.py": """
        VALUE = 7
        def fail():
            raise OSError("from the neighbour")
    """,
    "broken.py": "def f(:",
    "pack/__init__.py": "NAME = 'pack'",
    "pack/__main__.py": """
        import sys
        from . import NAME
        print(NAME, __name__, __package__, __file__, __spec__.name, sys.argv)
        print(sys.path[0])
        sys.exit(5)
    """,
    "pack/part.py": """
        import sys
        from . import NAME
        print(NAME, __name__, __package__, __file__, __cached__, __spec__.name)
        sys.exit(sys.argv[1:])
    """,
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        write(tmp_path / "programs" / name, text)
    return tmp_path


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text).replace("\\n", "\n"))


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def assert_same(folder, *command):
    expected = run(folder, *command)
    assert run(folder, "-m", "tf_ecornn", *command) == expected
    return expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_runs_as_ever(name, folder):
    write(folder / "programs" / "program.py", PROGRAMS[name])
    found = assert_same(folder, "programs/program.py", "--report", "x", "--info")
    assert found["out"] or found["err"] or found["code"]


def test_a_link_to_a_script_finds_the_neighbours(folder):
    write(folder / "programs" / "program.py", PROGRAMS["neighbour"])
    (folder / "link.py").symlink_to(folder / "programs" / "program.py")
    assert assert_same(folder, "link.py")["out"].startswith("7")


@pytest.mark.parametrize("module", ["pack", "pack.part", "pack.__main__"])
def test_a_module_runs_as_ever(module, folder):
    found = assert_same(folder / "programs", "-m", module, "a", "--report")
    assert found["out"].startswith("pack __main__ pack")


def test_the_package_is_whole_and_found_where_it_was_started(folder):
    """From the source's folder, and that is not where the script is."""
    text = """
        import tf_ecornn
        import keras
        switched = hasattr(keras.layers.LSTM.inner_loop, "__wrapped__")
        print(tf_ecornn.__file__, tf_ecornn.LSTM.__module__, switched)
    """
    write(folder / "programs" / "program.py", text)
    done = subprocess.run(
        [sys.executable, "-m", "tf_ecornn", folder / "programs" / "program.py"],
        cwd=PACKAGE_ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    file, module, switched = done.stdout.split()
    assert pathlib.Path(file).parent == PACKAGE_ROOT / "tf_ecornn"
    assert module == "tf_ecornn.layers" and switched == "True"


def test_keras_2_is_not_switched_and_said(folder):
    write(folder / "programs" / "tf_keras.py", "")
    write(folder / "programs" / "program.py", "import tf_keras")
    done = run(folder, "-m", "tf_ecornn", "programs/program.py")
    assert done["code"] == 0
    assert "uses Keras 2 (tf_keras), whose layers are not switched" in done["err"]


def test_what_keras_lacks_is_told_by_its_import(folder):
    """Whatever goes wrong as the switch is set ends the import, and says why."""
    write(folder / "programs" / "keras.py", "class config: backend = lambda: 'jax'")
    write(folder / "programs" / "program.py", "import keras")
    done = run(folder, "-m", "tf_ecornn", "programs/program.py")
    assert done["code"] == 1
    assert "needs Keras on TensorFlow, but its backend is 'jax'" in done["err"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "a script, -m and a module, or --info is needed"),
        (["--report"], "a script, -m and a module, or --info is needed"),
        (["-m"], "a script, -m and a module, or --info is needed"),
        (["nowhere.py"], "can't open file 'nowhere.py': No such file"),
        (["."], "can't open file '.': Is a directory"),
        (["-m", "nowhere"], "there is no module 'nowhere' to run"),
        (["-m", "nowhere.inside"], "can't find module 'nowhere.inside': No module"),
        (["-m", ".nowhere"], "can't find module '.nowhere'"),
        (["-m", "sys"], "there is no module 'sys' to run"),
        (["--reprot", "x.py"], "unrecognized arguments: --reprot"),
        (["--info", "x.py"], "--info takes nothing else"),
        (["--info", "--report"], "--info takes nothing else"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(arguments, told, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    message = capsys.readouterr().err
    assert "usage: python -m tf_ecornn" in message and told in message
