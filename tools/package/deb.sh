# Debian packages from an installed tree. Source this file.

quire_deb_control() { # root name architecture depends recommends title, and the text on standard input
    local root=$1 recommends=$5
    mkdir -p "$root/DEBIAN"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: The Quire authors <quire@localhost>\n' "$2" "$version" "$3"
        printf 'Installed-Size: %s\nSection: science\nPriority: optional\n' "$(du -sk --apparent-size "$root" | cut -f1)"
        [ -z "$4" ] || printf 'Depends: %s\n' "$4"
        [ -z "$recommends" ] || printf 'Recommends: %s\n' "$recommends"
        printf 'Description: %s\n' "$6"
        sed 's/^$/./; s/^/ /'
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -print | sort | sed 's/^\.\///' | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
}

quire_deb_scripts() { # root: units are read again, stopped before they go, and forgotten at a purge
    cat >"$1/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
END
    cat >"$1/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop 'quire@*.service' || true; fi
END
    # /var/lib/quire stays: models, caches and ledgers are state.
    cat >"$1/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = purge ]; then rm -rf /etc/quire /etc/systemd/system/*.wants/quire@*.service; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
END
    chmod 755 "$1"/DEBIAN/p*
}

quire_deb_depends() { # root: what the program loads, as packages with the least versions
    local work
    work=$(mktemp -d)
    mkdir "$work/debian"
    printf 'Source: quire\n\nPackage: quire\nArchitecture: any\nDescription: quire\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O "$1"/usr/bin/quire $(ls "$1"/usr/lib/*.so 2>/dev/null)) 2>"$work/log" | sed -n 's/^shlibs:Depends=//p'
    rm -rf "$work"
}

# quire_deb PREFIX LICENCES OUT_DIR: quire_VERSION_ARCH.deb and quire-demo_VERSION_all.deb of an installed tree.
quire_deb() {
    local work root architecture
    work=$(mktemp -d)
    root=$work/quire
    architecture=$(dpkg --print-architecture)
    mkdir -p "$root/etc/quire" "$work/demo/usr/share/quire" "$work/demo/usr/share/doc/quire-demo"
    cp -a "$1" "$root/usr"
    mv "$root/usr/share/quire/demo" "$work/demo/usr/share/quire/demo"
    rmdir "$root/usr/share/quire"
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    gzip -9n "$root"/usr/share/man/man1/*.1
    { printf 'Quire is licensed under Apache-2.0: /usr/share/common-licenses/Apache-2.0\n\n'; cat "$2"; } >"$root/usr/share/doc/quire/copyright"
    rm -f "$root/usr/share/doc/quire/LICENSE"
    printf 'Quire and its demo model are licensed under Apache-2.0: /usr/share/common-licenses/Apache-2.0\n' >"$work/demo/usr/share/doc/quire-demo/copyright"

    local depends
    depends=$(quire_deb_depends "$root")
    [ -n "$depends" ] || quire_die "dpkg-shlibdeps could not say which packages build/quire needs"
    quire_deb_control "$root" quire "$architecture" "$depends" "ca-certificates, quire-demo" "LLM inference server with bit-reproducible answers" <<'END'
Quire serves language models over the OpenAI and Anthropic APIs. The same
request gets the same bits alone or among hundreds of others.
END
    quire_deb_scripts "$root"
    quire_deb_control "$work/demo" quire-demo all "" "quire" "model of a few million parameters, to try quire with" <<'END'
quire generate /usr/share/quire/demo "Tell me a story."
END
    quire_deb_pack "$root" "$3/quire_${version}_$architecture.deb"
    quire_deb_pack "$work/demo" "$3/quire-demo_${version}_all.deb"
    rm -rf "$work"
}

quire_deb_pack() { # root file
    quire_set_times "$1"
    dpkg-deb -Zxz --root-owner-group --build "$1" "$2" >/dev/null
}
