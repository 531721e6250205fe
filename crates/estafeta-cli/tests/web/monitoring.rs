//! The alert rules and the dashboard of `monitoring/`: a real Prometheus scrapes a live ring.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use estafeta_testbed::{NO_ENV, Output, Process, RedisServer, eventually};
use serde_json::{Value, json};

use crate::support::{SOON, WebServer, find_tool, get, run, skip, start};

const SECRET: &str = "just-looking";
const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

/// A program of Prometheus. None if there is no Prometheus here: then one line shows that the test was skipped.
fn tool(name: &str, test: &str) -> Option<PathBuf> {
    let tool = find_tool(&[name], "prometheus/usr/bin");
    if tool.is_none() {
        skip(test, "there is no Prometheus with its promtool here");
    }
    tool
}

#[track_caller]
fn expect_success(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn each_alert_fires_in_its_case_and_is_silent_otherwise() {
    let Some(promtool) = tool("promtool", "unit tests of the alerts") else { return };
    for (command, name) in [("check", "alerts.yml"), ("test", "alerts_test.yml")] {
        let path = file(name);
        expect_success(
            &Process::spawn(&promtool, [command, "rules", path.to_str().unwrap()], NO_ENV).output(SOON),
        );
    }
}

#[test]
fn each_alert_has_a_case_and_a_row_in_the_page() {
    let (rules, tests, page) = (text("alerts.yml"), text("alerts_test.yml"), text("../docs/metrics.md"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(alerts.len(), 12);
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert} has no case");
        let rule = rules.split_once(&format!("- alert: {alert}\n")).unwrap().1;
        let severity = rule.split_once("severity: ").unwrap().1.lines().next().unwrap();
        assert!(page.contains(&format!("| `{alert}` | {severity} |")), "{alert} has no row");
    }
}

#[test]
fn each_alert_about_a_ring_names_the_partition() {
    let rules = text("alerts.yml");
    let rules: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    let names_it = |rule: &&str| {
        let summary = rule.lines().find(|line| line.trim().starts_with("summary: ")).unwrap();
        summary.contains("{{ with $labels.partition }} in partition {{ . }}{{ end }}")
    };
    let others: Vec<&str> =
        rules.iter().filter(|rule| !names_it(rule)).map(|rule| rule.lines().next().unwrap()).collect();
    assert_eq!(others, ["EstafetaRedisLost", "EstafetaNotWatched"], "these are not about one ring");
}

/// The expressions of the panel with this title.
fn panel_expressions(title: &str) -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("grafana.json")).unwrap();
    let mut panels = dashboard["panels"].as_array().unwrap().iter();
    let panel = panels.find(|panel| panel["title"] == title).unwrap_or_else(|| panic!("no panel {title}"));
    let targets = panel["targets"].as_array().unwrap().iter();
    targets.map(|target| plain(target["expr"].as_str().unwrap(), ".+")).collect()
}

#[test]
fn the_dashboard_adds_partitions_up_and_shows_the_one_that_is_worst_off() {
    let Some(promtool) = tool("promtool", "the dashboard of a ring with partitions") else { return };
    // What two servers expose of one ring. The second partition has no generator and no handler.
    let mut series = Vec::new();
    for instance in ["web-1", "web-2"] {
        let mut add = |metric: &str, labels: &str, of_partitions: [&str; 2]| {
            for (partition, values) in of_partitions.iter().enumerate() {
                let labels =
                    format!("ring=\"parts\",instance=\"{instance}\",partition=\"{partition}\"{labels}");
                series
                    .push(json!({"series": format!("estafeta_ring_{metric}{{{labels}}}"), "values": values}));
            }
        };
        add("up", "", ["1x40", "1x40"]);
        add("has_generator", "", ["1x40", "0x40"]);
        add("balanced", "", ["1x40", "0x40"]);
        add("oldest_waiting_seconds", "", ["10x40", "40x40"]);
        add("members", ",role=\"handler\",state=\"alive\"", ["2x40", "_x40"]);
        add("members", ",role=\"handler\",state=\"dead\"", ["1x40", "2x40"]);
        add("messages", ",state=\"waiting\"", ["50x40", "60x40"]);
        add("messages", ",state=\"errors_kept\"", ["3x40", "4x40"]);
        for counter in ["published", "done", "retried", "taken", "takeovers", "buried", "returned", "fenced"]
        {
            add(&format!("{counter}_total"), "", ["0+15x40", "0+30x40"]);
        }
        add("failed_total", "", ["0+15x40", "0x40"]);
    }
    // The node is in office in one of the two.
    series
        .push(json!({"series": "estafeta_generating{ring=\"parts\",instance=\"node-1\"}", "values": "1x40"}));
    series.push(
        json!({"series": "estafeta_max_waiting{ring=\"parts\",instance=\"node-1\"}", "values": "80x40"}),
    );

    /// What an expression returns: labels and values.
    type Samples = &'static [(&'static str, f64)];
    let shown: &[(&str, &[Samples])] = &[
        ("Redis", &[&[("", 1.0)]]),
        ("Generator", &[&[("", 0.0)]]),
        ("Balance", &[&[("", 0.0)]]),
        ("Handlers alive", &[&[("", 0.0)]]),
        ("Oldest waiting", &[&[("", 40.0)]]),
        ("Errors kept", &[&[("", 7.0)]]),
        ("Messages per second", &[&[("", 3.0)], &[("", 3.0)], &[("", 1.0)]]),
        ("Queue", &[&[(", state=\"waiting\"", 110.0)]]),
        ("Oldest waiting message", &[&[("", 40.0)]]),
        ("Share of failures", &[&[("", 0.25)]]),
        ("Errors", &[&[("", 7.0)], &[("", 900.0)], &[("", 900.0)]]),
        (
            "Members",
            &[&[(", role=\"handler\", state=\"alive\"", 2.0), (", role=\"handler\", state=\"dead\"", 3.0)]],
        ),
        ("Take-overs and deaths", &[&[("", 900.0)], &[("", 900.0)], &[("", 900.0)], &[("", 900.0)]]),
        ("Queue, of its bound", &[&[("", 0.75)]]),
    ];
    let mut expected = Vec::new();
    for (title, of_expressions) in shown {
        let expressions = panel_expressions(title);
        assert_eq!(expressions.len(), of_expressions.len(), "{title}");
        for (expression, samples) in expressions.iter().zip(*of_expressions) {
            let samples: Vec<Value> = samples
                .iter()
                .map(|(labels, value)| json!({"labels": format!("{{ring=\"parts\"{labels}}}"), "value": value}))
                .collect();
            let expression = format!("round({expression}, 0.001)");
            expected.push(json!({"expr": expression, "eval_time": "9m", "exp_samples": samples}));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dashboard_test.yml");
    let tests = json!([{"interval": "15s", "input_series": series, "promql_expr_test": expected}]);
    std::fs::write(&path, json!({"evaluation_interval": "15s", "tests": tests}).to_string()).unwrap();
    expect_success(
        &Process::spawn(&promtool, ["test", "rules", path.to_str().unwrap()], NO_ENV).output(SOON),
    );
}

/// An address at which nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Starts Prometheus with the example of its configuration, only faster and with these addresses.
fn start_prometheus(program: &Path, directory: &Path, web: &str, nodes: &[String]) -> WebServer {
    let secret = directory.join("viewer-secret");
    std::fs::write(&secret, SECRET).unwrap();
    let mut config = text("prometheus.yml");
    let quoted: Vec<String> = nodes.iter().map(|address| format!("'{address}'")).collect();
    for (from, to) in [
        ("15s", "500ms"),
        ("15s", "500ms"),
        ("[alerts.yml]", &format!("['{}']", file("alerts.yml").canonicalize().unwrap().display())),
        ("viewer-secret\n", &format!("{}\n", secret.display())),
        ("'rings.example.com:7070'", &format!("'{web}'")),
        ("'worker-1:9464', 'worker-2:9464'", &quoted.join(", ")),
    ] {
        assert!(config.contains(from), "{from}");
        config = config.replacen(from, to, 1);
    }
    let (config_file, address) = (directory.join("prometheus.yml"), free_address());
    std::fs::write(&config_file, config).unwrap();
    let args = [
        format!("--config.file={}", config_file.display()),
        format!("--storage.tsdb.path={}", directory.join("data").display()),
        format!("--web.listen-address={address}"),
    ];
    let process = Process::spawn(program, args, NO_ENV);
    process.wait_for_stderr_line(SOON, |line| line.contains("Server is ready to receive web requests"));
    WebServer { process, address }
}

/// The values that an expression has now.
fn values_of(prometheus: &WebServer, expression: &str) -> Vec<f64> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = prometheus.get(&format!("/api/v1/query?query={encoded}"));
    assert_eq!(answer.status, 200, "{expression}: {answer:?}");
    let answer = answer.json();
    let number = |series: &Value| series["value"][1].as_str().unwrap().parse::<f64>().unwrap();
    answer["data"]["result"].as_array().unwrap().iter().map(number).collect()
}

fn rules(prometheus: &WebServer) -> Vec<Value> {
    prometheus.json("/api/v1/rules")["data"]["groups"][0]["rules"].as_array().unwrap().clone()
}

/// An expression of the dashboard, as it is for these rings and all nodes.
fn plain(expression: &str, rings: &str) -> String {
    // The values of a variable are the labels of a metric.
    let expression = match expression.strip_prefix("label_values(") {
        Some(rest) => rest.rsplit_once(", ").unwrap().0,
        None => expression,
    };
    let expression = expression.replace("$__rate_interval", "5m").replace("$__range", "5m");
    let expression = expression.replace("$ring", rings).replace("$node", ".+");
    assert!(!expression.contains('$'), "{expression}");
    expression
}

/// All expressions of the dashboard, as they are for these rings and all nodes.
fn dashboard_expressions(rings: &str) -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let named = fields.iter().filter(|(name, _)| ["expr", "definition"].contains(&name.as_str()));
                found.extend(named.map(|(_, text)| text.as_str().unwrap().to_owned()));
                fields.values().for_each(|field| collect(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text("grafana.json")).unwrap(), &mut found);
    found.iter().map(|expression| plain(expression, rings)).collect()
}

/// The words of a text that name metrics.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("estafeta_"))
}

#[test]
fn a_real_prometheus_has_data_for_every_alert_and_every_panel() {
    let name = "a real Prometheus on a live ring";
    let (Some(prometheus), Some(promtool)) = (tool("prometheus", name), tool("promtool", name)) else {
        return;
    };
    let redis = RedisServer::start();
    let addresses: Vec<String> = (0..3).map(|_| free_address()).collect();
    let nodes: Vec<Process> = addresses
        .iter()
        .map(|address| {
            let work = ["run", "--ring", "orders", "--interval", "5ms", "--error-rate", "0.3"];
            start(&redis, &[&work[..], &["--metrics", address]].concat(), &[])
        })
        .collect();
    // A ring with partitions, of one node.
    let (divided, divided_address) = ("divided", free_address());
    let work = ["run", "--ring", divided, "--partitions", "2", "--generator-handles", "--interval", "50ms"];
    let more = ["--error-rate", "0.3", "--metrics", &divided_address];
    let _divided_node = start(&redis, &[&work[..], &more].concat(), &[]);
    let web =
        WebServer::start_with(&redis, &["--ring", "orders,divided"], &[("ESTAFETA_WEB_VIEWER", SECRET)]);
    let directory = tempfile::tempdir().unwrap();
    let prometheus = start_prometheus(
        &prometheus,
        directory.path(),
        &web.address,
        &[&addresses[..], &[divided_address]].concat(),
    );
    let up = |expected: usize| {
        eventually(SOON, "all targets are scraped", || {
            let up = values_of(&prometheus, "sum(up) and max(estafeta_generating) > 0");
            (up == [expected as f64]).then_some(())
        });
    };
    up(5);
    // Another node takes over, so that there is something to see.
    let is_generator =
        |node: &&Process| node.stdout_lines().iter().any(|line| line.contains("became generator"));
    nodes.iter().find(is_generator).expect("one that generates").kill();
    up(4);

    let has_data = |expression: &str| {
        eventually(SOON, &format!("data for {expression}"), || {
            values_of(&prometheus, expression).iter().any(|value| value.is_finite()).then_some(())
        });
    };
    dashboard_expressions(".+").iter().for_each(|expression| has_data(expression));
    // Nothing has gone wrong in the other ring, so only levels and totals have data there.
    for title in
        ["Redis", "Generator", "Balance", "Handlers alive", "Queue", "Members", "Queue, of its bound"]
    {
        panel_expressions(title).iter().for_each(|panel| has_data(&panel.replace(".+", divided)));
    }
    assert_eq!(values_of(&prometheus, "count(estafeta_ring_up{ring=\"divided\",partition=~\".+\"})"), [2.0]);
    let generator = panel_expressions("Generator")[0].replace(".+", divided);
    eventually(SOON, "a generator in both partitions", || {
        (values_of(&prometheus, &generator) == [1.0]).then_some(())
    });
    let checked = eventually(SOON, "all rules were evaluated", || {
        let rules = rules(&prometheus);
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    for rule in &checked {
        assert_eq!(rule["health"], "ok", "{rule}");
        for metric in metrics_in(rule["query"].as_str().unwrap()) {
            assert!(!values_of(&prometheus, &format!("count({metric})")).is_empty(), "no data for {metric}");
        }
        for command in rule["annotations"]["description"].as_str().unwrap().split('`').skip(1).step_by(2) {
            check_command(&redis, command);
        }
    }
    let firing = eventually(SOON, "the alert about failures fires", || {
        let firing: BTreeSet<String> = rules(&prometheus)
            .iter()
            .filter(|rule| rule["state"] == "firing")
            .map(|rule| rule["name"].as_str().unwrap().to_owned())
            .collect();
        (!firing.is_empty()).then_some(firing)
    });
    assert_eq!(firing, BTreeSet::from(["EstafetaManyFailures".to_owned()]));

    let login = format!("Authorization: Bearer {SECRET}\r\n");
    let survivor = nodes.iter().position(Process::is_running).unwrap();
    for (address, headers) in [(&web.address, login.as_str()), (&addresses[survivor], "")] {
        let (check, mut input) = Process::spawn_fed(&promtool, ["check", "metrics"], NO_ENV);
        input.write_all(get(address, "/metrics", headers).body.as_bytes()).unwrap();
        drop(input);
        expect_success(&check.output(SOON));
        let open = get(address, "/metrics", &format!("{headers}{OPEN_METRICS}"));
        assert!(open.header("content-type").starts_with("application/openmetrics-text"), "{open:?}");
        assert!(open.body.ends_with("# EOF\n"), "{open:?}");
    }
}

/// A command that an alert recommends must exist, with all its options.
fn check_command(redis: &RedisServer, command: &str) {
    let Some(args) = command.strip_prefix("estafeta ") else { return };
    let args = args.replace("{{ $labels.ring }}", "orders");
    let args: Vec<&str> = args.split(' ').chain(["--help"]).collect();
    expect_success(&run(redis, &args));
}
