//! nginx for comparison, where the machine has it: the apiserver's own responses as files, and a
//! relay to the apiserver for every other request.

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use listless::tls;
use tempfile::TempDir;

use crate::{bare::Kept, rig::process::Process, wire::Endpoint};

const PROGRAM: &str = "nginx";
const START_LIMIT: Duration = Duration::from_secs(20);

/// One process that serves files and relays. `{port}`, `{upstream}` and `{answers}` are filled in.
const CONFIG: &str = r#"
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
  access_log off;
  tcp_nodelay on;
  sendfile on;
  keepalive_requests 1000000000;
  open_file_cache max=1000;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  default_type application/json;
  map_hash_bucket_size 4096;
  map "$http_accept_encoding $http_accept $request_uri" $answer {
    default none;
{answers}  }
  map $http_accept_encoding $encoding { default ""; gzip gzip; }
  upstream apiserver { server {upstream}; keepalive 64; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:{port} ssl;
    ssl_certificate certificate.pem;
    ssl_certificate_key key.pem;
    ssl_protocols TLSv1.3;
    root answers;
    location / {
      add_header Audit-Id 00000000-0000-4000-8000-000000000000;
      add_header Cache-Control "no-cache, private";
      add_header Content-Encoding $encoding;
      add_header Cache-Status "nginx; hit";
      try_files /$answer @relay;
    }
    location @relay {
      add_header Cache-Status "nginx; fwd=bypass";
      proxy_pass https://apiserver;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
    }
  }
}
"#;

/// The running server.
pub(crate) struct Nginx {
    pub(crate) endpoint: Endpoint,
    process: Process,
    // Declared last: it is removed after the process has ended.
    _folder: TempDir,
}

// === impl Nginx ===

impl Nginx {
    /// Starts nginx with these responses, in front of `upstream`. Returns nothing if the machine
    /// has no nginx.
    pub(crate) fn start(
        upstream: &Endpoint,
        answers: impl Iterator<Item = Kept>,
    ) -> Result<Option<Self>> {
        let version = Command::new(PROGRAM).arg("-v").stderr(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let folder = TempDir::with_prefix("listless-nginx-")?;
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("answers"))?;
        let mut named = String::new();
        for (number, Kept { form, target, body }) in answers.enumerate() {
            let encoding = if form.is_gzip() { "gzip" } else { "" };
            writeln!(named, "    \"{encoding} {} {target}\" {number};", form.accept())?;
            fs::write(path("answers").join(number.to_string()), body)?;
        }
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        fs::write(path("certificate.pem"), own.cert.pem())?;
        fs::write(path("key.pem"), own.signing_key.serialize_pem())?;
        // Free again once it is known.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let config = CONFIG
            .replace("{port}", &address.port().to_string())
            .replace("{upstream}", &upstream.authority)
            .replace("{answers}", &named);
        fs::write(path("nginx.conf"), config)?;
        let mut command = Command::new(PROGRAM);
        command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]);
        let mut process = Process::start(PROGRAM, command, &path("log"))?;
        let begun = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            let is_waiting = process.is_running() && begun.elapsed() < START_LIMIT;
            ensure!(is_waiting, "cannot start nginx: {}", process.log_tail(20));
            std::thread::yield_now();
        }
        let roots = tls::roots(own.cert.pem().as_bytes()).context("its certificate")?;
        let endpoint = upstream.at(&address.to_string(), roots);
        Ok(Some(Self { endpoint, process, _folder: folder }))
    }

    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.process.cpu_seconds()
    }
}
