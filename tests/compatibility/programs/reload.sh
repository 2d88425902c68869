# SPDX-License-Identifier: Apache-2.0
# reload.sh KIND COMMAND...: starts a server, asks it, reloads it as its package does, asks it again, ends it. Says whether the
# libraries of the launcher (-l of COMMAND) are in each of its processes, at the start and after the reload.
kind=$1
shift
wanted=
[ "$(basename "$1")" != launch ] || wanted=$(printf '%s\n' "$@" | grep -A1 -x -e -l | tail -n 1 | tr : '\n' | sed 's:.*/::')
chmod 755 . ..

# All processes below one, and it. A threaded process has the children of each of its threads.
tree() {
    for child in $(cat "/proc/$1"/task/*/children 2>/dev/null); do tree "$child"; done
    echo "$1"
}
# One that ends, or is gone, has none.
lacks() {
    maps=$(cat "/proc/$1/maps" 2>/dev/null)
    for library in $wanted; do
        [ -z "$maps" ] || grep -q "/$library\$" <<<"$maps" || return 0
    done
    return 1
}
serving() {
    local lost=
    for process in $(tree "$main"); do
        lacks "$process" && sleep 0.3 && lacks "$process" && lost="$lost $(tr '\0' ' ' <"/proc/$process/cmdline" | cut -c1-60)"
    done
    echo "$1: ${lost:-in every process}"
}
# Waits, at most a minute.
wait_for() {
    for _ in $(seq 1200); do
        eval "$1" && return
        kill -0 "$main" 2>/dev/null || break
        sleep 0.05
    done
    echo "never: $1"
    tail -n 3 log
}
get() { curl -s --unix-socket socket http://localhost/ && echo; }
answers() { get | grep -q .; }
workers() { tree "$main" | sort; }
has_ended() { ! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null; }
# The processes that were there have gone, but for the first one.
is_changed() { [ "$(comm -12 <(workers) <(echo "$old") | grep -cvx "$main")" = 0 ] && [ "$(workers | wc -l)" -gt 1 ]; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

begin_php_fpm() {
    sed "s:FOLDER:$PWD:" "$(dirname "$0")/php_fpm.conf" >conf
    cp "$(dirname "$0")/work.php" page.php
}
get_php_fpm() {
    SCRIPT_FILENAME=$PWD/page.php SCRIPT_NAME=/page.php REQUEST_METHOD=GET QUERY_STRING=1 cgi-fcgi -bind -connect "$PWD/socket" 2>/dev/null | tr -d '\r'
}
reload_php_fpm() {
    kill -USR2 "$main"
    wait_for '[ "$(grep -c "ready to handle connections" fpm-log)" -ge 2 ] && is_changed'
}

begin_haproxy() {
    cat >conf <<END
global
  log stderr format raw daemon err
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend f
  bind unix@$PWD/socket
  http-request return status 200 content-type text/plain string answer
END
}
reload_haproxy() {
    kill -USR2 "$main"
    wait_for is_changed
}

begin_nginx() {
    cat >conf <<END
daemon on; worker_processes 2; pid $PWD/pid; error_log $PWD/log; user $(id -un) $(id -gn);
events { worker_connections 64; }
http { access_log off; client_body_temp_path $PWD/b; proxy_temp_path $PWD/p; fastcgi_temp_path $PWD/f; uwsgi_temp_path $PWD/u; scgi_temp_path $PWD/s;
       server { listen unix:$PWD/socket; return 200 answer; } }
END
}
# A daemon, as in Debian's unit: as the child of a shell it refuses to be upgraded.
started_nginx() {
    wait "$started"
    main=$(cat pid)
}
# A new version of the program: the new master is a child of the old one, which ends.
reload_nginx() {
    first=$main
    kill -USR2 "$main"
    wait_for '[ -s pid.oldbin ] && [ -s pid ] && [ "$(cat pid)" != "$first" ]'
    main=$(cat pid)
    serving upgraded
    kill -QUIT "$first"
    wait_for 'has_ended "$first"'
}

begin_gunicorn() {
    printf 'def app(environ, start):\n    start("200 OK", [])\n    return [b"answer"]\n' >web.py
}
reload_gunicorn() {
    first=$main
    kill -USR2 "$main"
    wait_for '[ -s pid.2 ]'
    main=$(cat pid.2)
    wait_for '[ "$(workers | wc -l)" -gt 1 ]'
    serving upgraded
    kill -TERM "$first"
    wait_for 'has_ended "$first"'
}

begin_puma() {
    echo 'run ->(environment) { [200, {}, ["answer"]] }' >config.ru
}
reload_puma() {
    kill -USR2 "$main"
    wait_for '[ "$(grep -c "Restarting" log)" -ge 1 ] && [ "$(grep -c "Use Ctrl-C to stop" log)" -ge 2 ]'
}

begin_sshd() {
    port=$(free_port)
    ssh-keygen -q -t ed25519 -N "" -f key
    printf 'Port %s\nListenAddress 127.0.0.1\nHostKey %s\nPidFile %s\n' "$port" "$PWD/key" "$PWD/pid" >conf
    mkdir -p /run/sshd
}
get_sshd() { ssh-keyscan -p "$port" -t ed25519 127.0.0.1 2>/dev/null | grep -o -m 1 ssh-ed25519; }
reload_sshd() {
    kill -HUP "$main"
    wait_for '[ "$(grep -c "Server listening" log)" -ge 2 ]'
}

begin_node() {
    cat >server.js <<'END'
const cluster = require("cluster"), fs = require("fs");
if (cluster.isPrimary) {
    for (let i = 0; i < 2; i++) cluster.fork();
    process.on("SIGUSR2", () => Object.values(cluster.workers).forEach(worker => { cluster.fork(); worker.kill(); }));
    process.on("SIGTERM", () => process.exit(0));
} else require("http").createServer((question, answer) => answer.end("answer")).listen(process.cwd() + "/socket");
END
}
reload_node() {
    kill -USR2 "$main"
    wait_for is_changed
}

[ "$(type -t "get_$kind")" != function ] || eval "get() { get_$kind; }"
"begin_$kind"
"$@" >log 2>&1 &
main=$!
started=$!
[ "$(type -t "started_$kind")" != function ] || "started_$kind"
wait_for answers
get
serving started
old=$(workers)
"reload_$kind"
wait_for answers
get
serving reloaded
kill -TERM "$main" "$started" 2>/dev/null
wait_for 'has_ended "$main"' >/dev/null 2>&1
wait "$started"
echo "$?"
