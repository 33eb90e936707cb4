//! A node in namespaces of its own.
//!
//! All its processes descend from one, which ends with this one. After that only a folder below
//! `target/node` and control groups are left, which are removed. The machine's own rules, sysctls
//! and mounts are never changed.

mod component;
mod pki;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub use component::Component;

use crate::artifacts::{Artifacts, source, work_folder};
use crate::kube::until;
use crate::rig::client::{Client, Protocol, Server};

const START_LIMIT: Duration = Duration::from_secs(120);
const ADMIN_TOKEN: &str = "admin-token";
/// Second octets of the addresses between node and machine, tried in this order.
const NETWORKS: std::ops::Range<u8> = 239..250;
const CGROUPS: &str = "/sys/fs/cgroup";

/// The address and the name of a node.
#[derive(Clone, Debug)]
pub struct NodePlace {
    /// Its files.
    pub folder: PathBuf,
    /// Its name, also that of its control groups.
    pub name: String,
    /// Its own address.
    pub address: String,
    /// The machine's address, as the node sees it.
    pub host: String,
    /// The apiserver's port.
    pub port: u16,
}

/// A node that may be up.
#[derive(Debug)]
pub struct Node {
    place: NodePlace,
    link: String,
    kubernetes: PathBuf,
    images: Vec<PathBuf>,
    unshare: Option<Child>,
    init: u32,
}

// === impl NodePlace ===

impl NodePlace {
    fn server(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }
}

// === impl Node ===

impl Node {
    /// Chooses a place and writes all files; nothing runs yet.
    pub fn prepare(artifacts: &Artifacts) -> Result<Self> {
        let taken = |octet: &u8| link_path(&link(*octet)).exists();
        let octet =
            NETWORKS.into_iter().find(|octet| !taken(octet)).context("no network is free")?;
        let folder = work_folder().join("run");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .context("the files of the previous run cannot be removed")?;
        }
        for name in ["pki", "cni", "log", "etcd", "kubelet", "containerd", "volume-plugins"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let place = NodePlace {
            folder,
            name: format!("listless-{octet}"),
            address: format!("10.{octet}.0.1"),
            host: format!("10.{octet}.0.2"),
            port: 6443,
        };
        let pki = place.folder.join("pki");
        pki::write(&pki, &place.name, &place.address, &place.server())?;
        fs::write(pki.join("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,system:masters\n"))?;
        component::configure(&place)?;
        Ok(Self {
            place,
            link: link(octet),
            kubernetes: artifacts.kubernetes.clone(),
            images: artifacts.images.clone(),
            unshare: None,
            init: 0,
        })
    }

    /// Its files.
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// The program with everything of Kubernetes.
    pub fn kubernetes(&self) -> &Path {
        &self.kubernetes
    }

    /// The address where the apiserver listens.
    pub fn server(&self) -> Result<Server> {
        let authority = fs::read(self.place.folder.join("pki/ca.crt"))?;
        Server::new(&self.place.server(), &authority)
    }

    /// A client that may do everything.
    pub fn admin(&self) -> Result<Client> {
        Ok(Client::new(&self.server()?, Some(ADMIN_TOKEN), Protocol::Http1))
    }

    /// Writes the kubeconfig of the user with all rights.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let path = self.place.folder.join("kubeconfig");
        fs::write(&path, self.server()?.kubeconfig(ADMIN_TOKEN))?;
        Ok(path)
    }

    /// Starts it and waits until the apiserver is ready.
    pub async fn up(&mut self) -> Result<()> {
        self.enter_namespaces().await?;
        for component in [Component::Etcd, Component::Containerd, Component::Apiserver] {
            self.start(component)?;
        }
        until(START_LIMIT, "containerd", async || Ok(self.ctr(&["version"]).ok())).await?;
        for image in &self.images {
            let image = image.to_str().context("a path that is text")?;
            self.ctr(&["--namespace", "k8s.io", "images", "import", image])?;
        }
        self.ready().await?;
        for component in
            [Component::Manager, Component::Scheduler, Component::Kubelet, Component::Proxy]
        {
            self.start(component)?;
        }
        let admin = self.admin()?;
        let node = format!("/api/v1/nodes/{}", self.place.name);
        until(START_LIMIT, "the node to be Ready", async || {
            let node = admin.get(&node).await?.json()?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready =
                conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            Ok(is_ready.then_some(()))
        })
        .await
    }

    /// Waits until the apiserver is ready.
    pub async fn ready(&self) -> Result<()> {
        until(START_LIMIT, "the apiserver to be ready", async || {
            let answer = self.admin()?.get("/readyz").await;
            Ok(answer.is_ok_and(|answer| answer.status == 200).then_some(()))
        })
        .await
    }

    async fn enter_namespaces(&mut self) -> Result<()> {
        self.make_cgroups()?;
        let log = fs::File::create(self.place.folder.join("log/init.log"))?;
        let place = &self.place;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--uts"]);
        command.args(["--ipc", "--propagation", "private", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "bash"]).arg(source("scripts/init.sh")).arg(&place.folder);
        command.args([&place.name, &place.address, &place.host]).arg(component::SERVICES);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A key press at the terminal is for the suite.
        let child = command.process_group(0).spawn()?;
        let unshare = child.id();
        self.unshare = Some(child);
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        self.init = until(START_LIMIT, "the node's first process", async || {
            let children = fs::read_to_string(&children).unwrap_or_default();
            let init = children.split_whitespace().next().and_then(|id| id.parse().ok());
            Ok(init.filter(|init: &u32| is_apart(*init)))
        })
        .await?;
        let (link, init) = (self.link.as_str(), self.init.to_string());
        ip(&["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", &init])?;
        // Neither end may send packets by itself.
        ip(&["link", "set", link, "addrgenmode", "none"])?;
        ip(&["address", "add", &format!("{}/30", self.place.host), "dev", link])?;
        ip(&["link", "set", link, "up"])?;
        until(START_LIMIT, "the node's namespaces", async || {
            Ok(self.inside(&["test", "-e", "/run/node-stands"]).ok())
        })
        .await?;
        self.see_a_stray()
    }

    /// Sends a packet where none may go, to check that it is counted; the packet is dropped.
    fn see_a_stray(&self) -> Result<()> {
        ensure!(self.strays()? == 0, "something wanted to leave the node while it came up");
        let script = "ip neighbour add 198.51.100.1 lladdr 02:00:00:00:00:01 dev eth0
            ip route add 198.51.100.1 dev eth0
            echo >/dev/udp/198.51.100.1/9 || true
            ip route delete 198.51.100.1 dev eth0
            ip neighbour delete 198.51.100.1 dev eth0";
        self.inside(&["bash", "-c", script])?;
        ensure!(self.strays()? > 0, "packets that leave the node are not counted");
        self.inside(&["nft", "reset", "counters"]).map(drop)
    }

    /// One in every hierarchy, as pods' groups are in every one.
    fn make_cgroups(&self) -> Result<()> {
        for hierarchy in hierarchies()? {
            let group = hierarchy.join(&self.place.name);
            fs::create_dir_all(&group)?;
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let all = hierarchy.join(file);
                if all.exists() && group.join(file).exists() {
                    fs::write(group.join(file), fs::read(all)?)?;
                }
            }
        }
        Ok(())
    }

    /// A command in the node's namespaces.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string()]);
        command.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--", program]);
        command
    }

    /// Runs a command in the node's namespaces.
    pub fn inside(&self, words: &[&str]) -> Result<String> {
        let [program, arguments @ ..] = words else { bail!("no command") };
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?} on the node: {said}{complained}");
        Ok(said)
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String> {
        self.inside(&[&["ctr"], arguments].concat())
    }

    /// Starts a component.
    pub fn start(&self, component: Component) -> Result<()> {
        let (name, folder) = (component.name(), self.place.folder.display());
        // Debian's own programs are found by name. The others are all in one file.
        let program = match component {
            Component::Containerd => String::new(),
            _ => self.kubernetes.display().to_string(),
        };
        let script = format!(
            "ulimit -n \"$(ulimit -Hn)\"; setsid {program} \"$@\" >>{folder}/log/{name}.log 2>&1 \
             </dev/null & echo $! >{folder}/{name}.pid"
        );
        let flags = component.flags(&self.place);
        let mut words = vec!["sh", "-c", &script, "sh", name];
        words.extend(flags.iter().map(String::as_str));
        self.inside(&words).map(drop)
    }

    /// Ends a component at once.
    pub fn kill(&self, component: Component) -> Result<()> {
        let file = self.place.folder.join(format!("{}.pid", component.name()));
        let id = fs::read_to_string(file)?;
        let script =
            format!("kill -9 {0}; while kill -0 {0} 2>/dev/null; do sleep 0.05; done", id.trim());
        self.inside(&["sh", "-c", &script]).map(drop)
    }

    /// The number of packets to forbidden destinations.
    pub fn strays(&self) -> Result<u64> {
        if self.init == 0 {
            return Ok(0);
        }
        let counters = self.inside(&["nft", "--json", "list", "counters"])?;
        let counters: serde_json::Value = serde_json::from_str(&counters)?;
        let all = counters["nftables"].as_array().cloned().unwrap_or_default();
        let packets = all.iter().find_map(|one| one["counter"]["packets"].as_u64());
        packets.context("no rule counts packets that leave the node")
    }

    /// Stops it; only its files are left.
    pub fn down(&mut self) -> Result<()> {
        let Some(mut unshare) = self.unshare.take() else { return self.remove_cgroups() };
        // Its child is killed with it, and all other processes with that child.
        unshare.kill()?;
        unshare.wait()?;
        // It would disappear by itself once the kernel has cleaned up the node's network.
        if link_path(&self.link).exists() {
            ip(&["link", "delete", &self.link])?;
        }
        self.remove_cgroups()
    }

    #[expect(clippy::disallowed_methods, reason = "also called from drop, where nothing can await")]
    fn remove_cgroups(&self) -> Result<()> {
        let mut left = Vec::new();
        // The kernel takes a moment to notice that the groups are empty.
        for _ in 0..100 {
            left = Vec::new();
            for hierarchy in hierarchies()? {
                remove_groups(&hierarchy.join(&self.place.name), &mut left);
            }
            if left.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("control groups stay: {left:?}")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The end of the process does the same, except for control groups.
        let _ = self.down();
    }
}

fn link(octet: u8) -> String {
    format!("lsnode{octet}")
}

fn link_path(link: &str) -> PathBuf {
    Path::new("/sys/class/net").join(link)
}

fn is_apart(process: u32) -> bool {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let its = network(&process.to_string());
    its.is_some() && its != network("self")
}

/// The hierarchies of version 1, or the one of version 2.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(CGROUPS)?.filter_map(|entry| Some(entry.ok()?.path()));
    // Beside those of version 1 there may be one of version 2 that counts nothing.
    let is_first = |path: &PathBuf| path.join("tasks").exists() || path.ends_with("unified");
    let mut roots: Vec<_> = all.filter(is_first).collect();
    if roots.is_empty() {
        roots.push(PathBuf::from(CGROUPS));
    }
    roots.sort();
    roots.dedup_by_key(|root| fs::canonicalize(root).unwrap_or_default());
    Ok(roots)
}

fn remove_groups(group: &Path, left: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        remove_groups(&entry.path(), left);
    }
    if fs::remove_dir(group).is_err() {
        left.push(group.to_owned());
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments:?}: {complained}");
    Ok(())
}
