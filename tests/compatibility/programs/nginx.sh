# SPDX-License-Identifier: Apache-2.0
# nginx as a daemon on a socket in this folder: requests, reload, requests, quit.
mkdir -p pages
seq 5000 >pages/a
cat >conf <<END
daemon on; worker_processes 2; pid $PWD/pid; error_log $PWD/log; user $(id -un) $(id -gn);
events { worker_connections 64; }
http { access_log off; client_body_temp_path $PWD/b; proxy_temp_path $PWD/p; fastcgi_temp_path $PWD/f; uwsgi_temp_path $PWD/u; scgi_temp_path $PWD/s;
       server { listen unix:$PWD/socket; root $PWD/pages; gzip on; gzip_types *; location /again { proxy_pass http://unix:$PWD/socket:/a; } } }
END
ask() { curl -s --compressed --unix-socket socket "http://localhost/$1" | cksum; }
nginx -c "$PWD/conf" -p "$PWD" 2>&1 | grep -vE 'alert|notice'
until [ -s pid ] && [ -S socket ]; do sleep 0.02; done
for number in 1 2 3; do ask a; done
ask again
before=$(pgrep -P "$(cat pid)" | sort)
nginx -c "$PWD/conf" -p "$PWD" -s reload 2>&1 | grep -vE 'alert|notice'
for number in $(seq 300); do [ "$(pgrep -P "$(cat pid)" | sort | comm -12 - <(echo "$before") | wc -l)" = 0 ] && break; sleep 0.02; done
ask a
ask none | wc -l
master=$(cat pid)
nginx -c "$PWD/conf" -p "$PWD" -s quit 2>&1 | grep -vE 'alert|notice'
for number in $(seq 300); do [ -e "/proc/$master" ] && grep -q nginx "/proc/$master/comm" && [ -e pid ] || break; sleep 0.02; done
grep -cE 'exited on signal|alert.*exited' log
