"""What is under deploy/ says what it has to, read without any engine; and what compose starts does start, in its order."""

from __future__ import annotations

import configparser
import ipaddress
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from fairlane.cli.main import COMMANDS
from fairlane.cli.options import read_span
from fairlane.cli.server import GRACE_S as WEB_GRACE_S
from fairlane.worker.foreman.foreman import RETIRE_S
from fairlane.worker.foreman.process import KILL_AFTER_S
from fairlane.worker.foreman.supervisor import LAST_S
from tests.faults.eventually import eventually
from tests.servers.ports import free_port
from tests.servers.postgres import shared_server

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = ("migrate", "web", "worker")
MANIFESTS: list[dict[str, Any]] = [
    document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
PODS = {m["metadata"]["name"]: m["spec"]["template"]["spec"] for m in MANIFESTS if m["kind"] in {"Deployment", "Job"}}
HARDENED = (
    *("LockPersonality", "NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectClock", "ProtectControlGroups"),
    *("ProtectHome", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"),
    *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
)
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
INSTALLED = "/srv/shop/.venv/bin/fairlane"
FILES = sorted(
    path
    for path in (*DEPLOY.glob("*"), *(DEPLOY / "kubernetes").glob("*"), *(DEPLOY / "systemd").glob("*"))
    if path.is_file() and path.name != ".env"  # whoever deploys from here has one, and it is never committed
)
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()

SECRET = re.compile(
    r"(?i)(password|secret|token|passwd)\w*\s*[:=]\s*[\"']?(?!\$\{|$|\s*\{)[\w/+-]{6,}|://[^/\s:@]+:[^@\s$]+@"
)


def seconds(text: str) -> float:
    return read_span(text).total_seconds()


def value_of(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


def words_of(container: dict[str, Any]) -> list[str]:
    """What a container gives `fairlane`."""
    return container.get("args") or re.findall(r"fairlane ([\w -]+)", container["command"][-1])


def leaves_within_s(command: list[str]) -> float:
    """The longest a worker started so takes to be gone after SIGTERM."""
    return seconds(value_of(command, "--grace")) + LAST_S + KILL_AFTER_S + RETIRE_S


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd" / f"{name}.service").read_text())
    return parser


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, each with its continued lines as one."""
    lines = [line for line in DOCKERFILE.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


@pytest.mark.requirement("L22")
def test_web_and_worker_are_services_of_their_own_behind_one_image_and_one_schema() -> None:
    assert set(SERVICES) == {"database", *OURS}
    assert [SERVICES[name]["command"][0] for name in OURS] == ["migrate", "dashboard", "worker"]
    assert {SERVICES[name]["image"] for name in OURS} == {"fairlane:0.1"}
    for name in ("web", "worker"):
        assert SERVICES[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}


@pytest.mark.requirement("L22")
def test_compose_gives_a_worker_more_time_than_it_takes_to_leave() -> None:
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > leaves_within_s(SERVICES["worker"]["command"])
    assert seconds(SERVICES["web"]["stop_grace_period"]) > WEB_GRACE_S


@pytest.mark.parametrize("name", ["web", "worker"])
def test_compose_asks_each_process_on_the_port_where_it_answers(name: str) -> None:
    command, asked = SERVICES[name]["command"], SERVICES[name]["healthcheck"]["test"]
    assert asked[:3] == ["CMD", "fairlane", "healthcheck"]
    assert value_of(asked, "--probe-port") == value_of(command, "--port" if name == "web" else "--probe-port")


@pytest.mark.parametrize("name", OURS)
def test_compose_runs_nothing_of_ours_as_root_or_with_a_file_system_to_write_to(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not service.get("privileged")


def test_compose_lets_only_this_host_reach_the_dashboard_and_nobody_the_database() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "web": ["127.0.0.1:8650:8650"]
    }


def test_compose_logs_in_as_no_superuser(tmp_path: Path) -> None:
    assert "POSTGRES_USER" not in SERVICES["database"]["environment"]
    assert {SERVICES[name]["environment"]["FAIRLANE_URL"] for name in OURS} == {
        "postgresql://fairlane@database/fairlane"
    }
    server = shared_server()
    place = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "FAIRLANE_PASSWORD": "it's $ecret"}
    script = ["sh", str(DEPLOY / "postgres" / "role.sh")]
    try:
        subprocess.run(script, env={**place, "PATH": f"{server.programs}:{os.environ['PATH']}"}, check=True, timeout=60)
        with psycopg.connect(server.dsn("fairlane", "fairlane")) as conn:
            asked = "select rolsuper, rolbypassrls, rolcreaterole from pg_roles where rolname = current_user"
            assert conn.execute(asked).fetchall() == [(False, False, True)]
    finally:
        server.drop_database("fairlane")
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("drop role if exists fairlane")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_no_file_of_a_deployment_holds_a_secret_or_the_name_of_a_registry(path: Path) -> None:
    text = path.read_text()
    assert not SECRET.search(text)
    images = re.findall(r"(?m)^\s*(?:- )?image: (\S+)|^FROM (\S+)", text)
    for image in (one or other for one, other in images):
        assert re.fullmatch(r"[a-z]+:\d[\w.-]*", image), f"{image}: a plain name and an exact version"


@pytest.mark.parametrize(
    "text",
    ["PGPASSWORD: hunter2hunter2", "POSTGRES_PASSWORD=hunter2hunter2", "url: postgresql://fairlane:hunter2@db/x"],
)
def test_a_secret_written_into_a_file_would_be_found(text: str) -> None:
    assert SECRET.search(text)


@pytest.mark.requirement("L22")
def test_the_image_has_a_pinned_base_a_user_that_is_not_root_and_starts_without_a_shell() -> None:
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert bases
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases)
    last = dict(instructions())
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last["USER"])
    assert last["USER"] == SERVICES["worker"]["user"]
    assert [last["ENTRYPOINT"], last["CMD"]] == ['["fairlane"]', '["--help"]']
    assert last["STOPSIGNAL"] == "SIGTERM"


def test_the_image_is_made_of_files_that_are_there_and_are_sent_to_the_builder() -> None:
    root = DEPLOY.parent
    copied = [
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    sent = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == sent
    assert all((root / source).exists() for source in copied)


@pytest.mark.requirement("L22")
def test_kubernetes_asks_a_worker_whether_it_lives_and_whether_it_is_ready_on_its_probe_port() -> None:
    [worker] = PODS["fairlane-worker"]["containers"]
    [port] = worker["ports"]
    assert str(port["containerPort"]) == value_of(worker["args"], "--probe-port")
    assert value_of(worker["args"], "--probe-host") == "0.0.0.0"
    assert {name: worker[name]["httpGet"] for name in ("livenessProbe", "startupProbe", "readinessProbe")} == {
        "livenessProbe": {"path": "/livez", "port": port["name"]},
        "startupProbe": {"path": "/livez", "port": port["name"]},
        "readinessProbe": {"path": "/readyz", "port": port["name"]},
    }
    assert PODS["fairlane-worker"]["terminationGracePeriodSeconds"] > leaves_within_s(worker["args"])


def test_kubernetes_asks_the_dashboard_on_its_own_port_and_sends_requests_there() -> None:
    [web] = PODS["fairlane-web"]["containers"]
    [port] = web["ports"]
    assert str(port["containerPort"]) == value_of(web["args"], "--port")
    assert web["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert web["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    [service] = [manifest for manifest in MANIFESTS if manifest["kind"] == "Service"]
    labels = {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in MANIFESTS
        if manifest["kind"] == "Deployment"
    }
    assert service["spec"]["selector"] == labels["fairlane-web"] != labels["fairlane-worker"]
    assert [entry["targetPort"] for entry in service["spec"]["ports"]] == [port["name"]]


def test_every_deployment_names_the_networks_of_its_proxy() -> None:
    """Else all clients behind it have one address, and one guesser brakes the guesses of all."""
    [settings] = [manifest for manifest in MANIFESTS if manifest["kind"] == "ConfigMap"]
    units = dict(
        line.split("=", 1) for line in (DEPLOY / "systemd" / "fairlane.env.example").read_text().split() if "=" in line
    )
    for named, proxy in (
        (SERVICES["web"]["environment"]["FORWARDED_ALLOW_IPS"], "172.17.0.1"),
        (settings["data"]["FORWARDED_ALLOW_IPS"], "10.244.1.7"),
        (units["FORWARDED_ALLOW_IPS"], "127.0.0.1"),
    ):
        networks = [ipaddress.ip_network(network) for network in named.split(",")]
        assert any(ipaddress.ip_address(proxy) in network for network in networks)
        assert all(network.is_private for network in networks), "the internet is no proxy"


@pytest.mark.parametrize("name", PODS)
def test_pods_run_without_root_and_take_the_store_s_address_from_a_secret(name: str) -> None:
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"{pod['securityContext']['runAsUser']}:" in SERVICES["worker"]["user"]
    assert pod["automountServiceAccountToken"] is False
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        [entry] = container["env"]
        assert (entry["name"], entry["valueFrom"]["secretKeyRef"]["name"]) == ("FAIRLANE_URL", "fairlane-store")
        assert words_of(container)[0] in COMMANDS


def test_the_kustomization_names_every_manifest() -> None:
    [kustomization] = [manifest for manifest in MANIFESTS if manifest["kind"] == "Kustomization"]
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there


@pytest.mark.requirement("L22")
def test_systemd_stops_a_worker_by_its_own_signal_with_time_to_leave_and_restarts_one_that_failed() -> None:
    service = unit("fairlane-worker")["Service"]
    command = service["ExecStart"].split()
    assert command[:2] == [INSTALLED, "worker"]
    assert float(service["TimeoutStopSec"]) > leaves_within_s(command)
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert service["User"] not in {"", "root"}
    assert service["OOMPolicy"] == "continue"


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.stem)
def test_every_unit_is_one_systemd_understands(path: Path, tmp_path: Path) -> None:
    parsed = unit(path.stem)
    command = parsed["Service"]["ExecStart"].split()
    assert command[0] == INSTALLED
    assert command[1] in COMMANDS
    service = parsed["Service"]
    assert (service["CapabilityBoundingSet"], service["SystemCallFilter"]) == ("", "@system-service")
    assert {service[line] for line in HARDENED} == {"yes"}
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        here = Path(sys.executable).with_name("fairlane")
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace(INSTALLED, str(here)))
        # It only warns of names it does not know, and exits with 0.
        checked = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=60, check=False)
        complaints = [line for line in checked.stderr.splitlines() if path.name in line]
        assert (checked.returncode, complaints) == (0, [])


@pytest.fixture
def environment() -> dict[str, str]:
    """What compose gives its services, on a real PostgreSQL that is empty."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FAIRLANE_", "WORKER_", "PG"))}
    given = {key: value for key, value in SERVICES["worker"]["environment"].items() if key != "PGPASSWORD"}
    return {**kept, **given, "FAIRLANE_URL": shared_server().new_database("deployment"), "LOGNAME": "olga"}


def started(arguments: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "fairlane", *arguments],
            cwd=DEPLOY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


def moved(part: list[str], ports: dict[str, int]) -> list[str]:
    """As compose has it, but on a free port of this host alone."""
    theirs = {"8650": str(ports["web"]), "8651": str(ports["worker"]), "0.0.0.0": "127.0.0.1"}
    return [theirs.get(word, word) for word in part]


@pytest.mark.requirement("L22", "D26")
@pytest.mark.parametrize("name", ["fairlane-worker", "fairlane-web"])
def test_a_pod_waits_for_store_and_schema_without_failing_and_not_for_what_waiting_does_not_mend(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    [schema] = PODS[name]["initContainers"]
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    log = tmp_path / "log"

    def begin(**changed: str) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return subprocess.Popen(
                schema["command"], cwd=DEPLOY, env={**environment, **changed}, stdout=file, stderr=file
            )

    assert begin(FAIRLANE_PROFILE="prodution").wait(30) == 2
    waiting = [begin(FAIRLANE_URL=f"postgresql://127.0.0.1:{free_port()}/none")]
    try:
        eventually(lambda: "cannot be reached" in log.read_text(), within_s=30)
        waiting.append(begin())
        eventually(lambda: "fairlane migrate up" in log.read_text(), within_s=30)
        assert [process.poll() for process in waiting] == [None, None]
        up = [sys.executable, "-m", "fairlane", "migrate", "up"]
        subprocess.run(up, cwd=DEPLOY, env=environment, check=True, capture_output=True, timeout=60)
        assert waiting[1].wait(30) == 0
    finally:
        for process in waiting:
            process.kill()
            process.wait()


@pytest.mark.requirement("L22")
def test_what_compose_starts_does_start_in_its_order_answers_its_health_check_runs_a_job_and_stops_in_time(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fairlane", *arguments],
            cwd=DEPLOY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    ports = {"web": free_port(), "worker": free_port()}
    assert run("healthcheck").returncode == 1, "the schema is not there before migrate has run"
    assert run(*SERVICES["migrate"]["command"]).returncode == 0
    running = {
        name: started(moved(SERVICES[name]["command"], ports), environment, tmp_path / name)
        for name in ("web", "worker")
    }
    try:
        for name in running:
            check = moved(SERVICES[name]["healthcheck"]["test"][2:], ports)
            eventually(lambda check=check: run(*check).returncode == 0, within_s=60)
        done = run("enqueue", "mail.send", "user_id=7", "--tenant", "acme", "--wait-for", "30s")
        assert (done.returncode, "sent to user 7" in done.stdout) == (0, True), done.stderr
        for name, process in running.items():
            process.send_signal(signal.SIGTERM)
            process.wait(seconds(SERVICES[name]["stop_grace_period"]))
        assert running["worker"].returncode == 0, (tmp_path / "worker").read_text()
        assert running["web"].returncode in {0, -signal.SIGTERM}, (tmp_path / "web").read_text()
    finally:
        for process in running.values():
            process.kill()
            process.wait()
