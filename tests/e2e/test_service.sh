#!/bin/bash
# What `make install` leaves for a machine's start is in order: the systemd unit as systemd checks it, hardened, with a program
# that is there; launchd's file is a property list.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
DESTDIR="$work/image" cmake --install "$BUILD_DIR" --prefix /opt/lockstep >/dev/null || fail "cmake --install"
unit=$work/image/opt/lockstep/lib/systemd/system/lockstep-node.service
if [ "$(uname)" = Linux ]; then
    [ -s "$unit" ] || fail "no unit is installed"
    [ -s "$work/image/opt/lockstep/lib/sysusers.d/lockstep.conf" ] || fail "no sysusers file is installed"
    grep -q "^ExecStart=/.*/bin/lockstep node " "$unit" || fail "the unit starts $(grep ^ExecStart "$unit")"
    if command -v systemd-analyze >/dev/null; then
        sed "s|^ExecStart=[^ ]*|ExecStart=$LOCKSTEP|" "$unit" >"$work/lockstep-node.service"
        said=$(systemd-analyze verify --man=no "$work/lockstep-node.service" 2>&1 | grep lockstep-node)
        [ -z "$said" ] || fail "systemd-analyze verify: $said"
        systemd-analyze security --offline=true --threshold=30 "$work/lockstep-node.service" >"$work/out" 2>&1 ||
            fail "exposed: $(tail -1 "$work/out")"
    fi
fi
sed 's|@[A-Z]*@|/opt|' "$SOURCE_DIR/packaging/lockstep-node.plist.in" >"$work/plist"
python3 - "$work/plist" <<'EOF' || fail "launchd's file"
import plistlib, sys
job = plistlib.load(open(sys.argv[1], "rb"))
assert job["Label"] == "org.lockstep.node" and job["ProgramArguments"] == ["/opt/lockstep", "node"], job
EOF
[ $failures = 0 ] && echo "the unit and launchd's file are in order"
