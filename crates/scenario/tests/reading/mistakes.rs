// SPDX-License-Identifier: GPL-2.0-only
//! What is said about wrong scenarios: a row for each mistake, with words that the refusal has in it.
use crate::{load, refusal};

#[test]
fn mistakes() {
    let task = "[task.hog]\nmodel = \"busy\"\n";
    let rows: &[(&str, &[&str])] = &[
        ("x = ", &["not TOML", "t.toml:1"]),
        ("[host]\ncores = 4\n[host]\n", &["not TOML", "t.toml:3"]),
        (
            "hosts = 1",
            &[
                "unknown key `hosts` in the scenario",
                "did you mean `host`?",
            ],
        ),
        ("host = 4", &["`host` takes table, not a whole number"]),
        ("[host]\ncores = 0", &["`host.cores` is 0", "1 to 4096"]),
        (
            "[host]\ncores = 4097",
            &["`host.cores` is 4097", "1 to 4096"],
        ),
        (
            "[host]\ncores = 2049\nthreads = 2",
            &["4098 CPUs, more than 4096"],
        ),
        ("[host]\ncores = \"4\"", &["write 4 without quotes"]),
        ("[host]\ncores = -1", &["`host.cores` is -1"]),
        ("[host]\ncores = 99999999999", &["1 to 4096"]),
        (
            "[host]\ncores = 4\nllcs = 3",
            &["spread evenly over 3 last-level caches"],
        ),
        (
            "[host]\npackages = 2\nnodes = 4",
            &["spread evenly over 4 nodes"],
        ),
        ("[host]\nhz = 1", &["10 to 10000"]),
        ("[host]\nhz = \"often\"", &["count or \"exact\""]),
        ("[host]\nkernel = \"newest\"", &["not a kernel version"]),
        (
            "[host]\nple_yield = \"kmv\"",
            &["\"kvm\" or \"xen\", not `kmv`", "did you mean `kvm`?"],
        ),
        (
            "[vm.a.guest]\nple = \"sometimes\"",
            &["`vm.a.guest.ple` takes true or false"],
        ),
        ("[host]\ncost = \"free\"", &["\"none\" or a table"]),
        ("[host.cost]\nswitch = 2", &["write \"2us\""]),
        (
            "[host.cost]\nmigrate = { same_cpu = \"1us\" }",
            &["unknown key `same_cpu` in [host.cost.migrate]"],
        ),
        (
            "[host]\nmemory = \"4GiB\"",
            &["this release does not have sizes of memory", "`memory`"],
        ),
        (
            "[host]\ntasks = [\"hogg\"]\n[task.hog]\nmodel = \"busy\"",
            &["no task `hogg`", "did you mean `hog`?"],
        ),
        (
            "[[host.hotplug]]\nat = \"1s\"\ncpu = 9\nonline = false",
            &["`host.hotplug.cpu` is 9", "CPUs are 0 to 3"],
        ),
        (
            "[[host.hotplug]]\nat = \"1s\"\ncpu = 1\nonline = true",
            &["online already"],
        ),
        (
            "[host]\ncores = 1\n[[host.hotplug]]\nat = \"1s\"\ncpu = 0\nonline = false",
            &["last CPU"],
        ),
        ("[[host.hotplug]]\ncpu = 0\nonline = false", &["needs `at`"]),
        (
            "[optimiser]\nby = [\"frezing\"]",
            &[
                "`optimiser.by` has no `frezing`",
                "did you mean `freezing`?",
            ],
        ),
        (
            "[optimiser]\nby = [\"set\"]",
            &["`optimiser.by` has no `set`", "did you mean `sets`?"],
        ),
        ("[optimiser]\nsmoothing = \"0%\"", &["setting alpha is 0"]),
        ("[optimiser]\nspread = \"wide\"", &["cpus, pool"]),
        (
            "[vm.web]\n[optimiser.vm.wev]\nguarantee = \"1 CPUs\"",
            &["no group of VMs `wev`", "did you mean `web`?"],
        ),
        (
            "[vm.web]\n[optimiser.vm.web]\nguarantee = \"0.75 CPUs\"\nlimit = \"0.5 CPUs\"",
            &["[optimiser.vm.web]: VM web: the limit of 0.5 CPUs is 0.25 below"],
        ),
        (
            "[vm.web]\n[optimiser.vm.web]\nguarantee = \"2 CPUs\"",
            &["the guarantee is 2 CPUs", "its 1 vCPUs"],
        ),
        (
            "[vm.web]\n[optimiser.vm.web]\nweight = 0",
            &["`optimiser.vm.web.weight` is 0", "1 to 10000"],
        ),
        (
            "[vm.web]\n[optimiser.vm.web]\nservice = \"best\"",
            &["has no `best`", "best-effort"],
        ),
        ("[run]\nmeasure = \"0s\"", &["nothing would be measured"]),
        ("[run]\nmeasure = \"10\"", &["no unit", "10s"]),
        (
            "[run]\nwarmup = \"2 parsecs\"",
            &["`parsecs` is not a unit of time"],
        ),
        ("[run]\nseeds = 0", &["`run.seeds` is 0"]),
        ("[vm.web]\nvcpus = 0", &["a VM needs at least one vCPU"]),
        ("[vm.web]\nvcpus = 5000", &["1 to 4096"]),
        (
            "[vm.web]\nweight = 0",
            &["`vm.web.weight` is 0", "1 to 10000"],
        ),
        ("[vm.web]\nweight = 10001", &["1 to 10000"]),
        ("[vm.web]\naffinity = []", &["is empty", "at least one CPU"]),
        ("[vm.web]\naffinity = [4]", &["no CPU 4", "0 to 3"]),
        ("[vm.web]\naffinity = 4", &["no CPU 4", "0 to 3"]),
        ("[vm.web]\naffinity = \"2-1\"", &["range `2-1` is empty"]),
        ("[vm.web]\naffinity = \"0-3,9\"", &["no CPU 9"]),
        ("[vm.web]\ncap = \"0 CPUs\"", &["a cap of zero"]),
        ("[vm.web]\ncap = 2", &["write \"2 CPUs\""]),
        ("[vm.web]\nnice = 20", &["-20 to 19"]),
        ("[vm.web]\ncgroup = \"a/b\"", &["no name for a cgroup"]),
        (
            "[vm.web]\ncgroup = \"web-1\"",
            &["`web-1` would be one of vm.web's own"],
        ),
        (
            "[vm.web]\ncgroup = \"all\"\nweight = 200",
            &["vm.web.weight is the whole cgroup's", "t.toml:3"],
        ),
        ("[vm.web]\nclass = \"lateny\"", &["did you mean `latency`?"]),
        ("[vm.web]\nclass = \"auto\"", &["only a host has it"]),
        ("[vm.web]\nclass = \"mixed\"", &["needs `reserved_vcpus`"]),
        (
            "[vm.web]\nclass = \"none\"\nreserved_vcpus = 1",
            &["only for class mixed"],
        ),
        (
            "[host]\nhz = 1000\n[host.cost]\ntick_jitter = \"16us\"",
            &["at most 15625 ns", "t.toml:4"],
        ),
        (
            "[host]\nhz = \"exact\"\n[host.cost]\ntick_jitter = \"1s\"",
            &["at most 1562500 ns"],
        ),
        (
            "[vm.web]\nclass = \"mixed\"\nvcpus = 2\nreserved_vcpus = 3",
            &["1 to 1"],
        ),
        (
            "[vm.web]\nclass = \"mixed\"\nreserved_vcpus = 1",
            &["has one vCPU", "class latency or batch"],
        ),
        ("[vm.web]\nreserved_vcpus = 1", &["only for class mixed"]),
        (
            "[vm.web]\nguest_agent = true",
            &["`guest_agent` is only for class mixed", "t.toml:2"],
        ),
        (
            "[vm.web]\nclass = \"mixed\"\nvcpus = 2\nreserved_vcpus = 1\nguest = \"none\"\nguest_agent = true",
            &["`vm.web.guest_agent` needs a guest", "t.toml:6"],
        ),
        ("[vm.web]\nguest_agent = 1", &["true or false"]),
        (
            "[task.hog]\nmodel = \"busy\"\nuid = -1",
            &["`task.hog.uid` is -1", "at least 0"],
        ),
        ("[vm.web]\ntasks = \"hog\"", &["write [\"hog\"]"]),
        (
            "[vm.web]\ntasks = [1]",
            &["list of strings", "a whole number"],
        ),
        (
            "[vm.web]\ntasks = [\"hog\", \"hog\"]\n[task.hog]\nmodel = \"busy\"",
            &["named twice"],
        ),
        (
            "[vm.web]\nguest = { polcy = \"mrsf\" }",
            &[
                "unknown key `polcy` in [vm.web.guest]",
                "did you mean `policy`?",
            ],
        ),
        (
            "[vm.web]\nguest = 4",
            &["`vm.web.guest` takes policy or table"],
        ),
        ("[vm.web]\nguest = \"a b\"", &["is not a policy"]),
        (
            "[vm.web.guest]\nhz = 5",
            &["`vm.web.guest.hz` is 5", "10 to 10000"],
        ),
        ("[vm.web]\nrole = \"drivr\"", &["did you mean `driver`?"]),
        ("[net]\npath = \"vhots\"", &["did you mean `vhost`?"]),
        ("[net]\nlink = \"0bit/s\"", &["outside 1bit/s"]),
        ("[net]\nlink = 10", &["`net.link` takes bandwidth"]),
        ("[net]\nmtu = \"1B\"", &["64 B to 64 KiB"]),
        ("[net]\npath = \"vhost\"\nirq_cpus = [9]", &["no CPU 9"]),
        ("[net]\nirq_cpus = [0]", &["path `none` has no card"]),
        (
            "[vm.web]\ntasks = [\"e\"]\n[task.e]\nmodel = \"echo\"\n[client.c]\nto = \"web\"\nsends = \"every 1ms\"\n\
             [net]\npath = \"vhost\"\n[net.stages]\n",
            &["vm.web has a guest", "guest = \"none\""],
        ),
        (
            "[vm.web]\nbackend_affinity = [0]",
            &["on this path a VM has none"],
        ),
        (
            "[vm.web]\nguest = \"none\"\ncoverage = \"50%\"",
            &["give `affinity`"],
        ),
        (
            "[vm.web]\naffinity = [0]\ncoverage = \"50%\"",
            &["those of a guest are bound together"],
        ),
        (
            "[vm.web]\nguest = \"none\"\naffinity = [0]\ncoverage = \"150%\"",
            &["more than all of its threads"],
        ),
        (
            "[net.stages]\n",
            &["those of the paths vhost, emulator and direct"],
        ),
        (
            "[net]\npath = \"driver-domain\"\n[net.stages]\n",
            &["those of the paths vhost, emulator and direct"],
        ),
        (
            "[net]\npath = \"emulator\"\n[net.stages]\ncard = \"emulted\"",
            &["did you mean `emulated`?"],
        ),
        (
            "[net]\npath = \"vhost\"\n[net.stages]\ncard = \"emulated\"",
            &["needs net.path = \"emulator\""],
        ),
        (
            "[net]\npath = \"direct\"\n[net.stages]\nrps_cpus = [0]",
            &["no softirq of the host"],
        ),
        (
            "[net]\npath = \"vhost\"\n[net.stages]\nper_batch = \"120%\"",
            &["more than all of it"],
        ),
        (
            "[net]\npath = \"vhost\"\n[net.stages]\nresend = \"0s\"",
            &["dropped again at once"],
        ),
        (
            "[net]\npath = \"vhost\"\n[net.stages]\nring = 0",
            &["net.stages.ring"],
        ),
        (
            "[net]\npath = \"vhost\"\n[net.stages]\nbatch = 0",
            &["net.stages.batch"],
        ),
        (
            "[net]\npath = \"vhost\"\n[net.stages]\ncopi = \"1us\"",
            &["did you mean `copy`?"],
        ),
        (
            "[task.t]\nmodel = \"batch\"\ncompute = \"0s\"\nsleep = \"0s\"",
            &["takes no time"],
        ),
        (
            "[task.t]\nmodel = \"batch\"\nchunks = 4",
            &["model batch does not take `chunks`", "model parallel"],
        ),
        (
            "[task.t]\nmodel = \"parallel\"\nchunks = 0",
            &["`task.t.chunks` is 0"],
        ),
        (
            "[task.t]\nfirst = [\"exit\"]\nmodel = \"busy\"",
            &["belongs in the loop"],
        ),
        (
            "[vm.web]\nstart = \"2s\"\nstop = \"1s\"",
            &["stops before it starts"],
        ),
        ("[vm.host]", &["cannot be called `host`"]),
        ("[vm.\"a b\"]", &["cannot name a thing"]),
        (
            "[vm]\ncount = 2",
            &["`vm.count` is a whole number, not a table", "[vm.NAME]"],
        ),
        ("vm = 2", &["[vm.NAME]"]),
        ("[vm.a]\ncount = 3\n[vm.a-2]", &["VMs of the same name"]),
        (
            "[vm.a]\ncount = 100000\nvcpus = 4096",
            &["more than 1000000 vCPUs"],
        ),
        ("[task.t]", &["does nothing", "`loop`"]),
        ("[task.t]\nloop = []", &["no steps"]),
        (
            "[task.t]\nmodel = \"busy\"\nloop = [\"exit\"]",
            &["both a loop and a model"],
        ),
        ("[task.t]\nmodel = \"bussy\"", &["did you mean `busy`?"]),
        (
            "[task.t]\nmodel = \"busy\"\nload = \"5%\"",
            &["does not take `load`", "model lookbusy"],
        ),
        (
            "[task.t]\nmodel = \"lookbusy\"\nload = \"120%\"",
            &["at most 100%"],
        ),
        ("[task.t]\nloop = [\"compute 5\"]", &["has no unit", "^"]),
        ("[task.t]\nloop = [\"yield\"]", &["takes no time"]),
        ("[task.t]\nloop = [\"reply\"]", &["has received none"]),
        ("[task.t]\nloop = [\"busy\", \"yield\"]", &["never reached"]),
        (
            "[task.t]\nloop = [\"receive users\"]",
            &["nobody sends to `users`"],
        ),
        (
            "[task.t]\nloop = [\"fork you\", \"exit\"]",
            &["no task `you`"],
        ),
        ("[task.t]\nloop = [\"barrier b\"]", &["takes no time"]),
        (
            "[task.t]\nloop = [\"read disk\"]",
            &["takes a disk and a size"],
        ),
        (
            "[task.t]\nthreads = 0\nmodel = \"busy\"",
            &["`task.t.threads` is 0", "no task has a step `fork t`"],
        ),
        (
            "[task.t]\nloop = [\"timer every 5ms from now\"]",
            &["`from start`", "catching up"],
        ),
        (
            "[vm.a]\nguest=\"none\"\ncgroup=\"x\"\nstop=\"1s\"\ntasks=[\"t\"]\n[vm.b]\nguest=\"none\"\n\
             cgroup=\"x\"\ntasks=[\"t\"]\n[task.t]\nthreads=1\nloop=[\"barrier b\", \"sleep 1ms\"]",
            &["vm.a stops, and shares"],
        ),
        ("[vm.a]\ncgroup = \"x\"\n[optimiser]", &["vm.a shares one"]),
        ("[task.t]\nmodel = \"echo\"", &["answers nobody"]),
        (
            "[vm.w]\ntasks=[\"t\"]\n[task.t]\nloop=[\"send q 1B\", \"sleep 1s\"]",
            &["nobody takes what is sent to `q`"],
        ),
        (
            "[client.c]\nto = \"w\"\nsends = \"every 1s\"",
            &["no VM `w`"],
        ),
        (
            "[vm.w]\n[client.c]\nsends = \"every 1s\"",
            &["[client.c] needs `to`"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"often\"",
            &["does not say when to send", "poisson(400/s)"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"every 1s\"",
            &[
                "no task of vm.w takes the requests of client.c",
                "receive c",
            ],
        ),
        // Threads per request, sizes that are told, batches, room.
        (
            "[task.t]\nper_request = true\nloop = [\"compute 1ms\"]",
            &["begins with `receive`, and receives once", "^^^"],
        ),
        (
            "[task.t]\nper_request = true\nloop = [\"receive a\", \"receive b\", \"reply\"]",
            &["begins with `receive`, and receives once"],
        ),
        (
            "[task.t]\nper_request = true\nthreads = 2\nloop = [\"receive a\", \"reply\"]",
            &["`threads` and `per_request` exclude each other"],
        ),
        (
            "[task.t]\nper_request = true\nrounds = 2\nloop = [\"receive a\", \"reply\"]",
            &["has as many rounds as they are sent"],
        ),
        (
            "[task.t]\nper_request = true\nfirst = [\"compute 1ms\"]\nloop = [\"receive a\", \"reply\"]",
            &["`first` and `per_request` exclude each other"],
        ),
        (
            "[task.t]\nper_request = \"yes\"\nloop = [\"receive a\", \"reply\"]",
            &["`task.t.per_request` takes true or false"],
        ),
        (
            "[task.t]\nmodel = \"busy\"\nestimate = \"guess\"",
            &["`guess` should be oracle, or lognormal(1.25)"],
        ),
        (
            "[task.t]\nmodel = \"busy\"\nestimate = \"lognormal(0)\"",
            &["`0` should be greater than 0"],
        ),
        (
            "[task.t]\nmodel = \"busy\"\nestimate = \"lognormal(-1)\"",
            &["-1"],
        ),
        (
            "[task.t]\nmodel = \"busy\"\nestimate = \"lognormal(NaN)\"",
            &["NaN"],
        ),
        (
            "[task.t]\nmodel = \"busy\"\nestimate = \"lognormal(11)\"",
            &["a sigma above 10"],
        ),
        (
            "[task.t]\nmodel = \"busy\"\nestimate = 1.25",
            &["`task.t.estimate` takes"],
        ),
        (
            "[task.t]\nloop = [\"compute exp(0ms)\"]",
            &["longer than zero"],
        ),
        ("[task.t]\nloop = [\"compute exp(-1ms)\"]", &["-1ms"]),
        (
            "[task.t]\nloop = [\"compute hyperexp(1ms, 0.5)\"]",
            &["vary more than exponential ones"],
        ),
        (
            "[task.t]\nloop = [\"compute hyperexp(0ms, 4)\"]",
            &["longer than zero"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"batch(0)\"",
            &["`0` is not a number of requests", "1 to 1000000"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"batch(-1)\"",
            &["`-1` is not a number of requests"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"batch(1000001)\"",
            &["1 to 1000000"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"batch\"",
            &["does not say when to send", "batch(500)"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"poisson(0/s)\"",
            &["0"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"every 1s\"\nat_most = 0",
            &["`client.c.at_most` is 0", "1 to 1000000"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"every 1s\"\nat_most = -3",
            &["`client.c.at_most` is -3"],
        ),
        (
            "[vm.w]\n[client.c]\nto = \"w\"\nsends = \"closed(4 users, think 1ms)\"\nat_most = 2",
            &["`at_most` is for clients that do not wait for answers"],
        ),
        (
            "[disk.d]\n[task.t]\nloop = [\"read d 0B\"]",
            &["a record of 0 bytes", "t.toml:3"],
        ),
        (
            "[disk.sda]\n[task.t]\nloop = [\"read sdb 4KiB\"]",
            &["there is no disk `sdb`", "did you mean `sda`?", "t.toml:3"],
        ),
        (
            "[disk.d]\nsize = \"1GiB\"\nfile = \"2GiB\"",
            &[
                "the file of 2147483648 bytes is larger than the disk of 1073741824",
                "t.toml:3",
            ],
        ),
        (
            "[disk.d]\nsize = \"3GiB\"\n[vm.w]\ncount = 4\ntasks = [\"t\"]\n[task.t]\nloop = [\"read d 4KiB\"]",
            &["4 files of 1073741824 bytes", "larger than the disk"],
        ),
        (
            "[disk.d]\nfile = \"1MiB\"\n[task.t]\nloop = [\"sleep 1ms\", \"write d 2MiB\"]",
            &[
                "a record of 2097152 bytes is larger than the file",
                "t.toml:4",
            ],
        ),
        (
            "[disk.d]\nfile = \"0B\"",
            &["a file of 0 bytes has no records"],
        ),
        (
            "[disk.d]\ncache = \"0B\"\nread_ahead = \"128KiB\"",
            &[
                "`disk.d.read_ahead` fetches into the cache, and there is none",
                "t.toml:3",
            ],
        ),
        (
            "[disk.d]\ncache = \"0B\"\nwrite_back = \"1s\"",
            &["`disk.d.write_back` writes back from the cache, and there is none"],
        ),
        (
            "[disk.d]\ncache = \"0B\"\ndirty = \"10%\"",
            &["`disk.d.dirty` is a part of the cache, and there is none"],
        ),
        (
            "[disk.d]\ncache = \"1MiB\"\nread_ahead = \"1MiB\"",
            &["`disk.d.read_ahead` is more than half of the cache"],
        ),
        (
            "[disk.d]\ncache = \"1KiB\"",
            &["a cache of 1024 bytes has no room for a block of 4096"],
        ),
        ("[disk.d]\nblock = \"0B\"", &["`disk.d.block` is 0 bytes"]),
        (
            "[disk.d]\nrequest = \"1B\"",
            &["`disk.d.request` is 1 bytes", "at least 512B"],
        ),
        ("[disk.d]\nblock = \"2MiB\"", &["is larger than a request"]),
        (
            "[disk.d]\nfile = \"200GiB\"\n[vm.w]\ntasks = [\"t\"]\n[task.t]\nloop = [\"read d 4KiB\"]",
            &["52428800 blocks of 4096 bytes", "a larger `block`"],
        ),
        ("[disk.d]\ndirty = \"0%\"", &["above 0%, at most 90%"]),
        ("[disk.d]\ndirty = \"95%\"", &["above 0%, at most 90%"]),
        (
            "[disk.d]\nseek = \"2ms\"\nseek_far = \"1ms\"",
            &["shorter than one to the next place"],
        ),
        (
            "[disk.d]\npath = \"virtoi\"",
            &["`virtoi` is not one of: virtio", "did you mean `virtio`?"],
        ),
        (
            "[disk.d]\naccess = \"often\"",
            &["not one of: sequential, random"],
        ),
        (
            "[disk.d]\nbandwidth = \"0MB/s\"",
            &["`disk.d.bandwidth`", "outside"],
        ),
        ("[disk.d]\nspeed = 4", &["unknown key `speed` in [disk.d]"]),
        ("[disk]\nsize = \"1GiB\"", &["below a header [disk.NAME]"]),
        (
            "[task.t]\nmodel = \"iozone\"",
            &["not said on which disk", "[disk.NAME]"],
        ),
        (
            "[disk.d]\n[task.t]\nmodel = \"iozone\"\nrecord = \"0B\"",
            &["a record of 0 bytes", "t.toml:4"],
        ),
        (
            "[disk.d]\n[task.t]\nmodel = \"iozone\"\nmode = \"rite\"",
            &["there is no mode `rite`", "did you mean `write`?"],
        ),
        (
            "[task.t]\nmodel = \"sysbench-cpu\"\nevents = 0",
            &["`task.t.events` is 0"],
        ),
        ("[calibrate]", &["[calibrate] needs `arm`"]),
        (
            "[vm.w]\n[arm.a]\n[arm.b]\n[calibrate]\narm = \"b\"\nmetric = \"w.cpu\"\ntarget = \"1 CPU\"\nsearch = { \
             \"host.cores\" = [1, 2] }",
            &["`b` is an arm under test", "arm = \"a\"", "t.toml:5"],
        ),
        (
            "[vm.w]\n[arm.a]\n[calibrate]\narm = \"a\"\nmetric = \"w.cpu\"\ntarget = \"1 CPU\"\nsearch = { \
             \"policy.slice\" = [1, 2] }",
            &["cannot be fitted", "what is tested"],
        ),
        (
            "[vm.w]\n[arm.a]\n[calibrate]\narm = \"a\"\nmetric = \"w.cpu\"\ntarget = \"1 CPU\"\nsearch = { \
             \"vm.x.count\" = [1, 2] }",
            &["there is no vm `x`"],
        ),
        (
            "[vm.w]\n[arm.a]\n[calibrate]\narm = \"a\"\nmetric = \"w.cpu\"\ntarget = \"1 CPU\"\nsearch = { \
             \"host.cores\" = [] }",
            &["nothing to try"],
        ),
        (
            "[vm.w]\n[arm.a]\n[calibrate]\narm = \"a\"\nmetric = \"w.cpu\"\nclaim = \"X\"\nsearch = { \"host.cores\" = \
             [1] }",
            &["claims.toml beside the scenario"],
        ),
        (
            "[reproduces]\npaper = \"flms\"",
            &["[reproduces] needs `experiment`"],
        ),
        ("[arm.a]\npolicy = \"\"", &["no name"]),
        ("[arm.a]\npolicy = \"vm fair\"", &["not a policy"]),
        (
            "[arm.a]\nset = { \"run.seeds\" = 3 }",
            &["an arm cannot change `run.seeds`"],
        ),
        (
            "[arm.a]\nset = { \"vm.x.count\" = 3 }",
            &["there is no vm `x`"],
        ),
        (
            "[vm.x]\n[arm.a]\nset = { \"vm.x.vcpus\" = 0 }",
            &["`vm.x.vcpus` is 0", "t.toml:3"],
        ),
        (
            "[vm.x]\n[arm.a]\nset = { \"vm.x.vcpu\" = 1 }",
            &["unknown key `vcpu`", "t.toml:3"],
        ),
        (
            "[compare]\nbaseline = \"linus\"",
            &["no arm `linus`", "did you mean `linux`?"],
        ),
        ("[compare]\npolicies = \"linux\"", &["write [\"linux\"]"]),
        (
            "[[expect]]\nmetric = \"web.response.p99\"\narm = \"linux\"\nat_most = \"1ms\"",
            &["no VM `web`"],
        ),
        (
            "[vm.w]\n[[expect]]\nmetric = \"w.respnse.p99\"\narm = \"linux\"\nat_most = \"1ms\"",
            &["did you mean `response`?"],
        ),
        (
            "[vm.w]\n[[expect]]\nmetric = \"w.response.p98\"\narm = \"linux\"\nat_most = \"1ms\"",
            &["did you mean `p9"],
        ),
        (
            "[vm.w]\n[[expect]]\nmetric = \"w.cpu\"\narm = \"lin\"\nat_most = \"1 CPU\"",
            &["no arm `lin`"],
        ),
        (
            "[vm.w]\n[[expect]]\nmetric = \"w.cpu\"\narm = \"linux\"",
            &["needs `at_most` or `at_least`"],
        ),
        (
            "[vm.w]\n[[expect]]\nmetric = \"w.cpu\"\narm = \"linux\"\nat_most = \"1ms\"",
            &["1.5 CPUs"],
        ),
        (
            "[vm.w]\n[[expect]]\nmetric = \"w.work\"\narm = \"linux\"\nat_most = 5",
            &["the metric is in time"],
        ),
        ("[expect]\nmetric = \"w.work\"", &["[[expect]]"]),
        (
            "title = 5",
            &["`title` takes \"words\", not a whole number"],
        ),
    ];
    let mut wrong = Vec::new();
    for (text, words) in rows {
        let said = refusal(text);
        let missing = words.iter().filter(|word| !said.contains(**word));
        wrong.extend(
            missing.map(|word| format!("of\n{text}\n-- was said:\n{said}\n-- without: {word}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // The task list is only needed by some rows.
    assert!(
        load(task)
            .warnings
            .iter()
            .any(|w| w.contains("runs nowhere"))
    );
}
