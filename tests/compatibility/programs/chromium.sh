# SPDX-License-Identifier: Apache-2.0
# A page with a script, rendered without a screen; arguments go to chromium.
cat >page.html <<'END'
<!doctype html><title>t</title><p id=a></p><canvas id=c width=50 height=50></canvas><script>
const rows = Array.from({ length: 20000 }, (_, i) => ({ i, text: 'x'.repeat(i % 50) }));
const canvas = document.getElementById('c').getContext('2d');
canvas.fillRect(5, 5, 20, 20);
document.getElementById('a').textContent = JSON.stringify(rows).length + ' ' + canvas.getImageData(10, 10, 1, 1).data.join();
</script>
END
/usr/bin/chromium "$@" --headless=new --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$PWD/profile" --dump-dom "file://$PWD/page.html" 2>errors | grep '<p id'
status=${PIPESTATUS[0]}
grep -oE 'No usable sandbox|crashed|Received signal [0-9]+' errors | sort -u
exit "$status"
