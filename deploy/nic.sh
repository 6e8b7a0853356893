#!/bin/sh
# Hands a network card to DPDK and back, and sets hugepages, on a host that has nothing but a
# POSIX shell (busybox will do). Every step is printed before it is done, what is so already is
# said and left, and what a step was for is looked at afterwards. `replay-server doctor`
# says which of these commands a host needs.
#
#   nic.sh [--dry-run] status
#   nic.sh [--dry-run] hugepages COUNT [--size SIZE] [--node N]
#   nic.sh [--dry-run] bind 0000:03:00.0 [--driver vfio-pci] [--no-iommu] [--user NAME] [--force]
#   nic.sh [--dry-run] unbind 0000:03:00.0 [--after RESULT [--status CODE]] [--force]
#
# hugepages: at least COUNT; more than that stay. SIZE is 2M, 1G or another one that this host has,
# such as 64K, 32M or 512M. A host keeps an eighth of its memory free of them,
# 256 MiB at least and 2 GiB at most; where the kernel gives fewer they all go back. bind: loads the module and moves the card to it;
# --user then owns /dev/vfio/GROUP. unbind: gives the card back to the kernel driver that knows it;
# with the last card of vfio-pci goes the leave to do without an IOMMU. --after and --status are for
# a systemd unit, whose $SERVICE_RESULT and $EXIT_STATUS say whether it failed and starts again: then
# the card stays. After exit code 2, wrong words, it does not start again.
#
# A card in use is not taken, nor an interface by AF_XDP (native/dpdk/dpdk_use.c). It is in use when
# an interface of it, or of a virtual function of it, is up and has an address or a route (over any
# next hop, in any table), or has something standing on it: a bridge, Open vSwitch, a bond, a VLAN,
# a vxlan, a VRF, a PPPoE session. (An IPv6 address that is valid on its link alone does not count.)
# So it is when a process has a raw socket
# on such an interface, as a server over af_packet has, or has the card itself open: a virtual
# machine, a server. So it is when somebody made the interface promiscuous, beside the switch of `ip
# link`: a packet capture, or a container's macvlan, which stands in another network namespace,
# where nothing else shows it here. On a card that filters MAC addresses not even that does, nor
# of an ipvlan or a VLAN there: look for those yourself; and busybox's `ip` says nothing of it. So it
# is when tc has a clsact or ingress qdisc there, where `tc` is, or when it has an XDP program; what
# nftables sends on at a device, and programs of tcx, are not seen. Where
# `ip` is missing or fails, an interface that is up counts as in use: nothing else shows it all.
# --force takes it all the same, and says what that cuts. What is no network card is never taken; a
# Mellanox card, or a Microsoft one (mana), is left where it is: it works for DPDK under its kernel
# driver.
#
# --root DIR (tests): sys, proc, dev and bin/ip lie there. Exit codes: 0 done or nothing to do; 1 a
# step did not do what it was for; 2 the request is wrong or refused; one sentence says which.
set -u
LC_ALL=C # names of interfaces are any bytes
export LC_ALL

root=
dry=
driver=vfio-pci
size=2M
node=
no_iommu=
user=
force=
result=success
ended=
set_for_bind=

say() { printf '%s\n' "$*"; }
refuse() { printf 'nic.sh: %s\n' "$*" >&2; exit 2; }
fail() { printf 'nic.sh: %s\n' "$*" >&2; take_back; exit 1; }
read_word() { cat "$1" 2>/dev/null || true; }
link_name() { if [ -L "$1" ]; then basename "$(readlink "$1")"; fi; }

# take_back: a bind that fails leaves none of the kernel's switches set that it found unset.
take_back() {
    for switch in $set_for_bind; do
        case $switch in */driver_override) value= ;; *) value=N ;; esac
        say "+ echo $value > $switch"
        { printf '%s\n' "$value" > "$switch"; } 2>/dev/null
    done
    set_for_bind=
}

# put VALUE FILE: one write to the kernel, shown first.
put() {
    say "+ echo $1 > $2"
    [ -n "$dry" ] && return 0
    { printf '%s\n' "$1" > "$2"; } 2>/dev/null || fail "$2 does not take $1: are you root?"
}

# do_it COMMAND...: a program, shown first.
do_it() {
    say "+ $*"
    [ -n "$dry" ] && return 0
    "$@" || fail "\`$*\` failed"
}

# wait_for PATTERN: until the card's driver is this ("" for none), a second at most.
wait_for() {
    [ -n "$dry" ] && return 0
    tries=0
    while :; do
        # shellcheck disable=SC2254 # a pattern is wanted
        case $(link_name "$device/driver") in $1) return 0 ;; esac
        tries=$((tries + 1))
        [ $tries -gt 20 ] && return 1
        sleep 0.05 2>/dev/null || sleep 1
    done
}

known_card() {
    case $1 in
    [0-9a-f][0-9a-f][0-9a-f][0-9a-f]:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f].[0-7]) ;;
    *) refuse "\`$1\` is no PCI address; expected one such as 0000:03:00.0 (status lists them)" ;;
    esac
    card=$1
    device=$root/sys/bus/pci/devices/$card
    [ -d "$device" ] || refuse "there is no PCI device $card; status lists the network cards"
    case $(read_word "$device/class") in
    0x02*) ;;
    *) refuse "$card is no network card: its class is $(read_word "$device/class")" ;;
    esac
}

interfaces_of() {
    for place in "$1"/net/* "$1"/virtio*/net/*; do
        [ -e "$place" ] && basename "$place"
    done
}

# What says nothing of it counts as up. The last bit of the flags is IFF_UP.
is_up() {
    case $(read_word "$root/sys/class/net/$1/flags") in 0x*[02468aceACE]) return 1 ;; esac
    return 0
}

# byte HEX N: the Nth of a number in hexadecimal, as a decimal.
byte() { printf '%d' "0x$(printf %s "$1" | cut -c$((2 * $2 - 1))-$((2 * $2)))"; }
# dotted HEX: as /proc/net/route has IPv4's addresses, the last byte first.
dotted() { say "$(byte "$1" 4).$(byte "$1" 3).$(byte "$1" 2).$(byte "$1" 1)"; }
colons() { printf '%s\n' "$1" | sed 's/..../&:/g; s/:$//'; }

# routes INTERFACE, addresses INTERFACE: a line for each, a route to everywhere as the default one.
routes() {
    [ -r "$root/proc/net/route" ] && while read -r name to _ _ _ _ _ mask _; do
        case $name:$to:$mask in
        "$1":00000000:00000000) say "the default route" ;;
        "$1":*) say "the route to $(dotted "$to")/$(dotted "$mask")" ;;
        esac
    done < "$root/proc/net/route"
    [ -r "$root/proc/net/ipv6_route" ] && while read -r to length _ _ _ _ _ _ _ name; do
        case $name:$to/$length in
        "$1":fe[89ab]* | "$1":ff*) ;;
        "$1":00000000000000000000000000000000/00) say "the default route" ;;
        "$1":*) say "the route to $(colons "$to")/$((0x$length))" ;;
        esac
    done < "$root/proc/net/ipv6_route"
}

ask_ip() { if [ -n "$root" ]; then say "$root/bin/ip"; else say ip; fi; }

# filtered INTERFACE: a line where tc has a place for filters of what comes in, which may send it on.
filtered() {
    if [ -n "$root" ]; then tc=$root/bin/tc; else tc=tc; fi
    "$tc" qdisc show dev "$1" 2>/dev/null | grep -E '^qdisc (ingress|clsact) ' > /dev/null \
        && say "a clsact or ingress qdisc of tc is on $1"
}

# hops INTERFACE: the numbers of the next hops there, and of the groups that have one.
hops() {
    there=$("$(ask_ip)" nexthop show dev "$1" 2>/dev/null | sed -n 's/^id \([0-9]*\) .*/\1/p')
    there=$(printf %s "$there" | tr '\n' ' ')
    say "$there"
    "$(ask_ip)" nexthop show groups 2>/dev/null | sed -n '/^id [0-9]* group /{
        s/^id \([0-9]*\) group \([^ ]*\).*/\1 \2/; s/,[0-9]*//g; s,/, ,g; p; }' \
        | while read -r number members; do
            for member in $members; do
                case " $there " in *" $member "*) say "$number" ;; esac
            done
        done
}

# other_routes INTERFACE: as routes. Procfs shows of each route one next hop, and of IPv4 one table;
# `ip`, where there is one, all. A next hop's line follows its route's.
other_routes() {
    numbers=" $(hops "$1" | tr '\n' ' ') "
    for family in -4 -6; do
        "$(ask_ip)" $family route show table all 2>/dev/null
    done | while read -r to rest; do
        case $to in unicast | local | broadcast | anycast | multicast) to=${rest%% *} ;; esac
        case "$to $rest " in
        "nexthop "*) ;;
        *" table local "* | fe[89ab]?:* | ff??:*) target= ;;
        "default "*) target="the default route" ;;
        *) target="the route to $to" ;;
        esac
        case $target:" $rest " in
        :*) ;;
        *:*" dev $1 "*) say "$target" ;;
        *:*" dev "*) ;;
        *:*" nhid "*)
            number=${rest##*nhid }
            case $numbers in *" ${number%% *} "*) say "$target" ;; esac ;;
        esac
    done
}

addresses() {
    [ -r "$root/proc/net/if_inet6" ] && while read -r address _ _ scope _ name; do
        case $name:$scope in "$1":[!12]?) say "the address $(colons "$address")" ;; esac
    done < "$root/proc/net/if_inet6"
    # Of IPv4, procfs shows the routes of one table alone; `ip`, where there is one, the addresses.
    "$(ask_ip)" -o -4 addr show dev "$1" 2>/dev/null \
        | sed -n 's/.* inet \([0-9./]*\).*/the address \1/p'
}

# open_files FILE: the process and number of each open file whose link in /proc/PID/fd is so, a
# pattern of sed's, the lowest process first. Those of other users are seen by root alone.
open_files() {
    ls -l /dev/null "$root"/proc/[0-9]*/fd 2>/dev/null | sed -n "/^[^ ]*\/fd:\$/h
        \\,^l[^>]* [0-9]* -> $1\$,{ s/^[^>]* \([0-9]*\) -> .*/\1/; G
            s,\(.*\)\n.*/proc/\([0-9]*\)/fd:,\2 \1,p; }" | sort -u -k1,1n -k2,2n
}

# named PROCESS: what it is called, which is any bytes: those that a terminal obeys are left out.
named() {
    name=$(read_word "$root/proc/$1/comm")
    say "$(printf %s "$name" | tr -c ' -~' '?') (process $1)"
}

# device_of PROCESS FILE: the number of the device that it has open, as sysfs has it, or nothing. Its
# name says nothing: any user has such a file. O_PATH wants no right to what it names.
device_of() {
    flags=$(sed -n 's/^flags:[^0-7]*\([0-7]*\).*/0\1/p' "$root/proc/$1/fdinfo/$2" 2>/dev/null)
    [ $((${flags:-0} & 010000000)) -eq 0 ] || return 0
    found=$(stat -L -c '0x%t 0x%T %F' "$root/proc/$1/fd/$2" 2>/dev/null)
    case $found in *" character special file") ;; *) return 0 ;; esac
    found=${found% character special file}
    say "$((${found% *})):$((${found#* }))"
}

# heard_on INTERFACE: a line for each process with a raw socket there, a server over af_packet say.
heard_on() {
    number=$(read_word "$root/sys/class/net/$1/ifindex")
    [ -n "$number" ] && [ -r "$root/proc/net/packet" ] || return 0
    while read -r _ _ _ _ index _ _ _ inode; do
        [ "$index" = "$number" ] || continue
        owner=$(open_files "socket:\[$inode\]" | { read -r process _ && named "$process"; })
        say "${owner:-a process of another user} has a raw socket on $1"
    done < "$root/proc/net/packet" | sort -u
}

# programmed INTERFACE: a line where it has an XDP program, which `ip` alone shows. In these two
# places, since names and aliases may have the word too.
programmed() {
    printed=$("$(ask_ip)" link show dev "$1" 2>/dev/null | sed -n \
        -e '/^[0-9]*: [^ ]* <[^>]*> mtu [0-9]* xdp[/:a-z0-9]* qdisc /p' -e '/^ *prog\/xdp /p')
    [ -z "$printed" ] || say "an XDP program is on $1: a server over AF_XDP's, or a firewall"
}

# promiscuous INTERFACE: a line where somebody made it so, which `ip` alone shows. Its own switch,
# PROMISC among the flags, counts as one.
promiscuous() {
    printed=$("$(ask_ip)" -d link show dev "$1" 2>/dev/null)
    count=$(printf '%s\n' "$printed" | sed -n 's/.* promiscuity \([0-9]*\).*/\1/p' | head -n 1)
    switched=$(printf '%s\n' "$printed" | sed -n '1s/^[0-9]*: [^ ]* <\([^>]*\)>.*/,\1,/p')
    case $switched in *,PROMISC,*) count=$((${count:-0} - 1)) ;; esac
    [ "${count:-0}" -le 0 ] \
        || say "a macvlan elsewhere, or a packet capture, made $1 promiscuous"
}

# opened_card: a line for each process that has it past the kernel: a virtual machine, a server; also
# one whose root is another folder. Looked at are files of the device's name alone: another might lie
# in a network that does not answer.
opened_card() {
    group=$(link_name "$device/iommu_group")
    group=$root/sys/class/vfio/${group:-none}
    for place in "$group" "${group%/*}/noiommu-${group##*/}" "$device"/vfio-dev/vfio* \
        "$device"/uio/uio*; do
        number=$(read_word "$place/dev")
        [ -n "$number" ] || continue
        open_files ".*/${place##*/}\( (deleted)\)*" | while read -r process file; do
            [ "$(device_of "$process" "$file")" != "$number" ] \
                || say "$(named "$process") has it open"
        done
    done | uniq
}

# listed LINES: in one sentence.
listed() { printf %s "$1" | tr '\n' ';' | sed 's/;/; /g'; }

# spare_users: what a process has open is not taken from it without --force.
spare_users() {
    users=$(opened_card)
    [ -n "$users" ] || return 0
    [ -n "$force" ] || refuse "$card is in use: $(listed "$users"): end that first, or say --force," \
        "which takes it from them"
    printf '%s\n' "$users" | sed 's/^/! --force cuts: /'
}

# lost_with INTERFACE [DEPTH]: a line for each thing that is cut when it goes. Eight deep, as the
# kernel stacks them. What stands on an interface counts though it is down: Open vSwitch's is.
lost_with() {
    is_up "$1" || return 0
    carried=$({ routes "$1"; other_routes "$1"; addresses "$1"; } | sed -n '1p; /^the default route$/p' | tail -n 1)
    [ -z "$carried" ] || say "$1 carries $carried"
    # Without `ip` that would be all that procfs shows.
    "$(ask_ip)" -o -4 addr show dev "$1" > /dev/null 2>&1 \
        && "$(ask_ip)" -4 route show table all > /dev/null 2>&1 \
        || say "the kernel does not say what $1 carries: \`ip\` is missing here, or fails"
    heard=$(heard_on "$1")
    [ -z "$heard" ] || say "$heard"
    # Where that is of neither a capture nor what stands on it here: those have lines of their own.
    [ -n "$heard" ] || ls -d "$root/sys/class/net/$1"/upper_* > /dev/null 2>&1 || promiscuous "$1"
    programmed "$1"
    filtered "$1"
    [ -r "$root/proc/net/pppoe" ] && while read -r _ _ name; do
        [ "$name" = "$1" ] && say "a PPPoE session stands on $1"
    done < "$root/proc/net/pppoe"
    [ "${2:-0}" -ge 8 ] && return 0
    for upper in "$root/sys/class/net/$1"/upper_*; do
        [ -L "$upper" ] || continue
        say "${upper##*/upper_} stands on $1"
        lost_with "${upper##*/upper_}" $((${2:-0} + 1))
    done
}

# lost_with_card: the same for the card and its virtual functions, which go with it.
lost_with_card() {
    for function in "$device" "$device"/virtfn*; do
        interfaces=$(interfaces_of "$function")
        set -f # a name may be a pattern
        for interface in $interfaces; do set +f; lost_with "$interface"; done
        set +f
        held=$(link_name "$function/driver")
        case ${interfaces:+seen}:$function:$held in
        seen:* | *:) ;;
        *:"$device":vfio-pci | *:"$device":*uio*) ;;
        *:"$device":*) say "$held has it and no interface is here: another network namespace may" \
            "have one" ;;
        *) say "$held has its virtual function $(link_name "$function")" ;;
        esac
    done
}

# load MODULE: one that takes no PCI cards itself. load_driver MODULE: one that does.
load() {
    if [ -d "$root/sys/module/$1" ]; then say "= $1 is loaded"; else do_it modprobe "$1"; fi
}

load_driver() {
    if [ -d "$root/sys/bus/pci/drivers/$1" ]; then
        say "= $1 is loaded"
    else
        do_it modprobe "$1"
        [ -n "$dry" ] || [ -d "$root/sys/bus/pci/drivers/$1" ] \
            || fail "$1 is loaded, but takes no PCI cards: $root/sys/bus/pci/drivers/$1 is missing"
    fi
}

allow_no_iommu() {
    [ -e "$device/iommu_group" ] && return 0
    switch=$root/sys/module/vfio/parameters/enable_unsafe_noiommu_mode
    [ "$(read_word "$switch")" = Y ] && return 0
    [ -n "$no_iommu" ] || refuse "$card has no IOMMU group: add \`intel_iommu=on iommu=pt\` (AMD:" \
        "\`iommu=pt\`) to the kernel line and restart, or say --no-iommu: the card may then" \
        "write to any memory of this host"
    load vfio
    [ -n "$dry" ] || [ -e "$switch" ] || refuse "this kernel's vfio always wants an IOMMU (it was" \
        "built without CONFIG_VFIO_NOIOMMU): --driver uio_pci_generic works without"
    set_for_bind=$switch
    put Y "$switch"
}

# forbid_no_iommu: nobody is left whom bind --no-iommu could have allowed it for.
forbid_no_iommu() {
    switch=$root/sys/module/vfio/parameters/enable_unsafe_noiommu_mode
    [ "$(read_word "$switch")" = Y ] || return 0
    for other in "$root"/sys/bus/pci/devices/*; do
        [ "$other" != "$device" ] && [ "$(link_name "$other/driver")" = vfio-pci ] && return 0
    done
    put N "$switch"
}

tell_group() {
    group=$(link_name "$device/iommu_group")
    [ -n "$group" ] || return 0
    for other in "$root/sys/kernel/iommu_groups/$group/devices"/*; do
        held=$(link_name "$other/driver")
        case $(basename "$other"):$held:$(read_word "$other/class") in
        "$card":* | *:vfio*:* | *::* | *:0x06*) ;;
        *:0x02*) say "! $(basename "$other") ($held) shares IOMMU group $group: vfio gives the group to" \
            "nobody until that is bound too" ;;
        *) say "! $(basename "$other") ($held) shares IOMMU group $group and is no network card:" \
            "vfio gives the group to nobody while the kernel has that; take another slot" ;;
        esac
    done
    [ -n "$user" ] || return 0
    owned=$root/dev/vfio/$group
    [ -e "$owned" ] || owned=$root/dev/vfio/noiommu-$group
    case " $(stat -c '%U %u' "$owned" 2>/dev/null) " in
    *" $user "*) say "= $owned is $user's" ;;
    *)
        spare_users
        do_it chown "$user" "$owned" ;;
    esac
}

bind() {
    case $user in
    *[!0-9]*)
        id -u "$user" > /dev/null 2>&1 || refuse "there is no user \`$user\` here" ;;
    esac
    now=$(link_name "$device/driver")
    if [ "$now" = "$driver" ]; then
        say "= $card is bound to $driver"
        tell_group
        return 0
    fi
    case $now in
    mlx4_core | mlx5_core | mana)
        say "= $card works for DPDK under its kernel driver $now: nothing is to be bound"
        return 0 ;;
    esac
    lost=$(lost_with_card)
    if [ -n "$lost" ]; then
        [ -n "$force" ] || refuse "$card is in use: $(listed "$lost"): take that away first" \
            "(ip link set INTERFACE down), or say --force, which cuts it"
        printf '%s\n' "$lost" | sed 's/^/! --force cuts: /'
    fi
    spare_users
    # vfio asks vfio_iommu_type1 for the IOMMU, and only kmod's modprobe, not busybox's, brings it.
    case $driver in vfio-pci) allow_no_iommu; load vfio_iommu_type1 ;; esac
    load_driver "$driver"
    set_for_bind="$set_for_bind $device/driver_override"
    put "$driver" "$device/driver_override"
    if [ -n "$now" ]; then
        put "$card" "$device/driver/unbind"
        wait_for "" || fail "$now does not let go of $card"
    fi
    put "$card" "$root/sys/bus/pci/drivers_probe"
    if ! wait_for "$driver"; then
        take_back
        put "$card" "$root/sys/bus/pci/drivers_probe"
        wait_for "?*"
        fail "$driver did not take $card, which has $(link_name "$device/driver") again (dmesg" \
            "says why)"
    fi
    set_for_bind= # it is bound: what fails from now on takes nothing from under it
    tell_group
    [ -n "$dry" ] || say "$card: ${now:-no driver} -> $driver"
}

unbind() {
    case $result:$ended in
    success:* | exit-code:2) ;;
    *) say "= $card stays: the service ended with $result and starts again"; return 0 ;;
    esac
    now=$(link_name "$device/driver")
    case $now in
    vfio-pci | uio_pci_generic | igb_uio) ;;
    "") ;;
    *) say "= $card is with its kernel driver, $now"; return 0 ;;
    esac
    spare_users
    # No override: the kernel asks its own drivers again.
    put "" "$device/driver_override"
    if [ -n "$now" ]; then
        put "$card" "$device/driver/unbind"
        wait_for "" || fail "$now does not let go of $card: stop what uses it"
        case $now in vfio-pci) forbid_no_iommu ;; esac
    fi
    put "$card" "$root/sys/bus/pci/drivers_probe"
    [ -n "$dry" ] && return 0
    wait_for "?*" || fail "$card has no driver now: none that is loaded knows it (modprobe one)"
    say "$card: ${now:-no driver} -> $(link_name "$device/driver")"
}

mount_hugepages() {
    while read -r _ place kind _; do
        [ "$kind" = hugetlbfs ] && { say "= hugetlbfs is mounted at $place"; return 0; }
    done < "$root/proc/mounts"
    do_it mkdir -p "$root/dev/hugepages"
    do_it mount -t hugetlbfs -o "pagesize=$size" hugetlbfs "$root/dev/hugepages"
}

# usable_in PLACE: its free hugepages, without those another process has reserved and not touched.
usable_in() {
    free=$(read_word "$1/free_hugepages")
    kept=$(read_word "$root/sys/kernel/mm/hugepages/${1##*/}/resv_hugepages")
    free=$((${free:-0} - ${kept:-0}))
    [ "$free" -gt 0 ] || free=0
    say "$free"
}

kib_of() { sed -n "s/^$1: *\([0-9]*\) kB.*/\1/p" "$root/proc/meminfo" 2>/dev/null; }

# leave_room: what is missing of COUNT fits, and enough for the rest of the host is left beside.
leave_room() {
    free=$(kib_of MemAvailable)
    total=$(kib_of MemTotal)
    [ -n "$free" ] && [ -n "$total" ] || return 0
    spare=$((total / 8))
    [ "$spare" -ge 262144 ] || spare=262144
    [ "$spare" -le 2097152 ] || spare=2097152
    most=0
    [ "$free" -le "$spare" ] || most=$(((free - spare) / page))
    [ $((count - set)) -le "$most" ] || refuse "$count hugepages of $size are too many:" \
        "of $((free / 1024)) MiB that are free here $((spare / 1024)) have to stay, so" \
        "$((set + most)) at most"
}

hugepages() {
    case $1 in "" | *[!0-9]* | ??????????*) refuse "\`$1\` is no count of hugepages" ;; esac
    count=$1
    while :; do # 010 would be eight
        case $count in 0?*) count=${count#0} ;; *) break ;; esac
    done
    case $size in
    0* | ????????* | *[!0-9]*[KMG] | [KMG]) page= ;;
    *K) page=${size%K} ;;
    *M) page=$((${size%M} * 1024)) ;;
    *G) page=$((${size%G} * 1048576)) ;;
    *) page= ;;
    esac
    [ -n "$page" ] || refuse "--size is $size; expected one such as 2M or 1G"
    kind=hugepages-${page}kB
    place=$root/sys/kernel/mm/hugepages/$kind
    [ -n "$node" ] && place=$root/sys/devices/system/node/node$node/hugepages/$kind
    [ -d "$place" ] || refuse "$place is missing: no such NUMA node, or no pages of $size here"
    set=$(read_word "$place/nr_hugepages")
    set=${set:-0}
    if [ "$set" -ge "$count" ]; then
        say "= $set hugepages of $size are set, $(usable_in "$place") of them free"
    else
        leave_room
        put "$count" "$place/nr_hugepages"
        got=$(read_word "$place/nr_hugepages")
        if [ -z "$dry" ] && [ "${got:-0}" -lt "$count" ]; then
            put "$set" "$place/nr_hugepages"
            fail "the kernel gave ${got:-0} of $count hugepages of $size, and has all but $set back:" \
                "free memory is in pieces; ask after a restart, or on the kernel line" \
                "(hugepagesz=$size hugepages=$count)"
        fi
    fi
    [ "$count" -eq 0 ] || mount_hugepages
}

# tell_queues: what AF_XDP, which hears the first receive queue, needs on the card's interfaces.
tell_queues() {
    interfaces_of "$device" | while read -r interface; do
        count=$(ls -d "$root/sys/class/net/$interface/queues"/rx-* 2>/dev/null | grep -c .)
        [ "$count" -le 1 ] || say "! AF_XDP there hears one receive queue, and $interface has" \
            "$count: ethtool -L $interface combined 1"
    done
}

status() {
    for place in "$root"/sys/kernel/mm/hugepages/*; do
        [ -d "$place" ] && say "$(basename "$place"): $(usable_in "$place") free" \
            "of $(read_word "$place/nr_hugepages")"
    done
    for device in "$root"/sys/bus/pci/devices/*; do
        case $(read_word "$device/class") in
        0x02*) say "$(basename "$device") driver=$(link_name "$device/driver")" \
            "node=$(read_word "$device/numa_node") group=$(link_name "$device/iommu_group")" \
            "interfaces=$(interfaces_of "$device" | tr '\n' ' ')"
            tell_queues ;;
        esac
    done
}

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }

command=
what=
need() { [ $# -ge 2 ] || refuse "$1 wants a value; nic.sh --help"; }
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --dry-run) dry=1 ;;
    --no-iommu) no_iommu=1 ;;
    --force) force=1 ;;
    --root) need "$@"; root=${2%/}; shift ;;
    --driver) need "$@"; driver=$2; shift ;;
    --size) need "$@"; size=$2; shift ;;
    --node) need "$@"; node=$2; shift ;;
    --user) need "$@"; user=$2; shift ;;
    --after) need "$@"; result=$2; shift ;;
    --status) need "$@"; ended=$2; shift ;;
    -*) refuse "no option $1; nic.sh --help" ;;
    *) if [ -z "$command" ]; then command=$1; elif [ -z "$what" ]; then what=$1; else
        refuse "\`$1\` is not expected here; nic.sh --help"; fi ;;
    esac
    shift
done
case $node in *[!0-9]*) refuse "--node is $node; expected a number" ;; esac
case $driver in
vfio-pci | uio_pci_generic | igb_uio) ;;
*) refuse "--driver is $driver; expected vfio-pci, uio_pci_generic or igb_uio" ;;
esac
case $command in
status) status ;;
hugepages) hugepages "$what" ;;
bind) known_card "$what"; bind ;;
unbind) known_card "$what"; unbind ;;
"") usage; exit 2 ;;
*) refuse "no command \`$command\`: status, hugepages, bind or unbind" ;;
esac
