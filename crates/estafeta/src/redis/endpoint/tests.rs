use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_secret_url_of_any_server_leads_to_the_same_place(
        host in prop_oneof![Just("::1".to_owned()), "[a-z][a-z0-9.-]{0,9}"],
        port: u16,
        db in 0..16_i64,
        password in prop::option::of("\\PC{1,12}"),
    ) {
        let mut endpoint = Endpoint::tcp(&host, port).with_db(db);
        if let Some(password) = &password {
            endpoint = endpoint.with_password(password);
        }
        let shown: Endpoint = endpoint.to_string().parse().unwrap();
        prop_assert_eq!(shown.address(), endpoint.address());
        let again: Endpoint = endpoint.secret_url().parse().unwrap();
        prop_assert_eq!(again.address(), endpoint.address());
        let (found, given) = (again.info.redis_settings(), endpoint.info.redis_settings());
        prop_assert_eq!((found.db(), found.password()), (given.db(), password.as_deref()));
        prop_assert_eq!(again.has_password(), password.is_some());
    }

    #[test]
    fn any_text_is_read_or_refused_without_repeating_it(
        scheme in prop::sample::select(vec![
            "redis://", "rediss://", "redis+unix://", "redis+sentinel://", "rediss+cluster://", "http://", "",
        ]),
        rest in "[A-Z:@/?#\\[\\]%0-9]{6,20}",
    ) {
        let url = format!("{scheme}{rest}");
        if let Err(error) = url.parse::<Endpoint>() {
            prop_assert!(!error.to_string().contains(&rest), "{}", error);
        }
    }
}

#[test]
fn a_password_is_never_shown() {
    let endpoint: Endpoint = "redis://bob:s3cret@localhost:7000/2".parse().unwrap();
    assert_eq!(format!("{endpoint} {endpoint:?}"), "redis://localhost:7000/2 redis://localhost:7000/2");
    for other in ["rediss://bob:s3cret@h", "redis+unix:///s?user=bob&pass=s3cret"] {
        let endpoint: Endpoint = other.parse().unwrap();
        let shown = format!("{endpoint} {endpoint:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    for bad in ["redis://:s3cret@host:port", "http://s3cret@x", "s3cret"] {
        let shown = bad.parse::<Endpoint>().unwrap_err().to_string();
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("expected a URL such as"), "{shown}");
    }
}

#[test]
fn an_address_is_shown_and_passed_on_as_people_write_it() {
    let cases = [
        ("redis://bob:p%40ss@host:7000/2", "redis://host:7000/2", "redis://bob:p%40ss@host:7000/2"),
        ("rediss://host", "rediss://host:6379/0", "rediss://host:6379/0"),
        ("redis+unix:///a-b_c.d/e%20f?db=1", "/a-b_c.d/e f", "redis+unix:///a-b_c.d/e%20f?db=1"),
    ];
    for (given, shown, passed_on) in cases {
        let endpoint: Endpoint = given.parse().unwrap();
        assert_eq!((endpoint.to_string().as_str(), endpoint.secret_url().as_str()), (shown, passed_on));
        assert_eq!(endpoint.uses_tls(), given.starts_with("rediss:"));
    }
}

#[test]
fn the_database_may_be_a_parameter_and_other_urls_are_refused_with_the_reason() {
    let db = |url: &str| url.parse::<Endpoint>().map(|endpoint| endpoint.info.redis_settings().db());
    for url in ["redis://h/3", "redis://h?db=3", "rediss://h/?db=3", "redis://h/3?db=3", "unix:///s?db=3"] {
        assert_eq!(db(url).unwrap(), 3, "{url}");
    }
    assert_eq!(db("redis://h/?protocol=resp3").unwrap(), 0);
    let refused = [
        ("redis://h/?timeout=5", "got one with a parameter other than db, protocol"),
        ("redis://h/?user=bob", "got one with a parameter other than db, protocol"),
        ("unix:///s?password=p", "got one with a parameter other than db, user, pass, protocol"),
        ("redis://h/?db=x", "got one whose database is no number"),
        ("redis://h/?db=-1", "got one whose database is below 0"),
        ("redis://h/-1", "got one whose database is below 0"),
        ("redis://h/2?db=3", "got one with two databases"),
        ("localhost:6379", "got one without a scheme"),
        ("://localhost", "got one without a scheme"),
        ("bob:s3cret@h://x", "got one without a scheme"),
        ("http://localhost:6379", "got one with the scheme http"),
    ];
    for (url, why) in refused {
        assert!(db(url).unwrap_err().to_string().ends_with(why), "{url}: {:?}", db(url));
    }
}

#[test]
fn a_host_is_a_name_or_an_address() {
    let good = ["localhost", "my_redis-1.example.org", "10.0.0.5", "::1", "fe80::1%eth0", "bücher.example"];
    for host in good {
        assert!(Endpoint::is_host(host), "{host}");
    }
    for host in ["", "ho st", "host:6379", "[::1]", "redis://h", "a/b", "bob@h", "h\n", "ho%20st"] {
        assert!(!Endpoint::is_host(host), "{host}");
    }
    for url in ["redis://ho%20st", "rediss://ho!st:6379/0"] {
        let refused = url.parse::<Endpoint>().unwrap_err().to_string();
        assert!(refused.ends_with("got one whose host is no host name and no IP address"), "{refused}");
    }
}

#[test]
fn the_way_through_another_port_keeps_everything_but_the_place() {
    let secret = "p@ss:w/ord";
    let endpoint: Endpoint = "redis://bob@localhost:7000/2".parse().unwrap();
    let endpoint = endpoint.with_password(secret);
    assert_eq!(endpoint.address(), Some(Address::Tcp("localhost".into(), 7000)));
    let through: Endpoint = endpoint.secret_url_through(&[4711]).parse().unwrap();
    assert_eq!(through.to_string(), "redis://127.0.0.1:4711/2");
    let settings = through.info.redis_settings();
    assert_eq!((settings.username(), settings.password()), (Some("bob"), Some(secret)));

    let socket: Endpoint = "redis+unix:///run/redis.sock".parse().unwrap();
    assert_eq!(socket.address(), Some(Address::Unix("/run/redis.sock".into())));
    assert_eq!(socket.addresses(), [Address::Unix("/run/redis.sock".into())]);
    assert_eq!(socket.secret_url_through(&[4711]), "redis://127.0.0.1:4711/0");
    let encrypted = "rediss://host".parse::<Endpoint>().unwrap();
    assert_eq!((encrypted.address(), encrypted.addresses()), (None, vec![]));

    let sentinels: Endpoint = "redis+sentinel://:pw@h1:1,h2:2/m/3?sentinel-user=bob".parse().unwrap();
    assert_eq!(sentinels.address(), None);
    assert_eq!(sentinels.addresses(), [Address::Tcp("h1".into(), 1), Address::Tcp("h2".into(), 2)]);
    let through = sentinels.secret_url_through(&[4711, 4712]);
    assert_eq!(through, "redis+sentinel://:pw@127.0.0.1:4711,127.0.0.1:4712/m/3?sentinel-user=bob");
    let cluster: Endpoint = "redis+cluster://h1:1,h2:2".parse().unwrap();
    let through = cluster.secret_url_through(&[4711, 4712]);
    assert_eq!(through, "redis+cluster://127.0.0.1:4711,127.0.0.1:4712");
    let door = Door { host: "h9".into(), port: 9 };
    assert_eq!(cluster.pinned_to(Some(&door)).to_string(), "redis://h9:9/0");
}

#[test]
fn a_child_is_led_to_the_same_place_with_the_same_secrets() {
    let places = [
        "redis://bob@localhost:7000/2",
        "redis://[::1]:6379/0",
        "rediss://bob@example.org:6380/1",
        "redis+unix:///run/my redis/r.sock?db=3&user=bob",
    ];
    for url in places {
        let endpoint = url.parse::<Endpoint>().unwrap().with_password("p@ss:w/ord&x=?#");
        let child: Endpoint = endpoint.secret_url().parse().unwrap();
        assert_eq!(child.to_string(), endpoint.to_string());
        let (ours, theirs) = (endpoint.info.redis_settings(), child.info.redis_settings());
        assert_eq!(
            (ours.username(), ours.password(), ours.db()),
            (theirs.username(), theirs.password(), theirs.db())
        );
    }
    assert_eq!("redis://localhost".parse::<Endpoint>().unwrap().secret_url(), "redis://localhost:6379/0");
}

#[test]
fn a_url_with_several_doors_is_shown_without_secrets_and_passed_on_with_them() {
    let cases = [
        (
            "redis+sentinel://bob:p%40ss@h1:26380,h2/mymaster/3",
            "redis+sentinel://h1:26380,h2:26379/mymaster/3",
            "redis+sentinel://bob:p%40ss@h1:26380,h2:26379/mymaster/3",
        ),
        (
            "rediss+sentinel://[::1],h2/my%20master?sentinel-user=eve&sentinel-password-file=/run/s%26p",
            "rediss+sentinel://[::1]:26379,h2:26379/my%20master/0",
            "rediss+sentinel://[::1]:26379,h2:26379/my%20master/0?sentinel-user=eve&sentinel-password-file=/run/s%26p",
        ),
        (
            "redis+cluster://:pw@h1:7000,[::1]:7001,h3/",
            "redis+cluster://h1:7000,[::1]:7001,h3:6379",
            "redis+cluster://:pw@h1:7000,[::1]:7001,h3:6379",
        ),
        (
            "rediss+cluster://h1/0?tls-ca=/etc/ca.pem&tls-cert=/c.pem&tls-key=/k.pem",
            "rediss+cluster://h1:6379",
            "rediss+cluster://h1:6379?tls-ca=/etc/ca.pem&tls-cert=/c.pem&tls-key=/k.pem",
        ),
        (
            "rediss://h1/2?tls-ca=/etc/my%20ca.pem",
            "rediss://h1:6379/2",
            "rediss://h1:6379/2?tls-ca=/etc/my%20ca.pem",
        ),
    ];
    for (given, shown, passed_on) in cases {
        let endpoint: Endpoint = given.parse().unwrap();
        assert_eq!((endpoint.to_string().as_str(), endpoint.secret_url().as_str()), (shown, passed_on));
        assert_eq!(endpoint.secret_url().parse::<Endpoint>().unwrap().secret_url(), passed_on);
        assert_eq!(endpoint.uses_tls(), given.starts_with("rediss"));
        endpoint.check().unwrap();
    }
    let endpoint: Endpoint = "redis+sentinel://bob:p%40ss@h1,h2/m/3".parse().unwrap();
    assert_eq!(endpoint.way, Way::Sentinel("m".into()));
    let settings = endpoint.info.redis_settings();
    assert_eq!((settings.username(), settings.password(), settings.db()), (Some("bob"), Some("p@ss"), 3));
    assert_eq!(endpoint.address(), None);
    let other = endpoint.with_user("eve").with_password("other").with_db(4);
    assert_eq!(other.secret_url(), "redis+sentinel://eve:other@h1:26379,h2:26379/m/4");
}

#[test]
fn what_is_wrong_with_a_url_of_several_doors_is_said() {
    let refused = [
        ("redis+sentinel://h1,h2", "got one without the name of a master"),
        ("redis+sentinel://h1//3", "got one without the name of a master"),
        ("redis+sentinel://h1/m/x", "got one whose database is no number"),
        ("redis+sentinel://h1/m/-1", "got one whose database is below 0"),
        ("redis+sentinel://h1/m?user=bob", "parameter other than sentinel-user, sentinel-password-file"),
        ("redis+cluster://h1/1", "got one with a path: a cluster has only database 0"),
        ("redis+cluster://h1?tls-ca=/x", "got one with a parameter, and none is known"),
        ("rediss+cluster://h1?db=1", "parameter other than tls-ca, tls-cert, tls-key"),
        ("redis+cluster://h1,,h2", "got one that cannot be read (invalid client config)"),
        ("redis+cluster://h1:port", "got one that cannot be read (invalid client config)"),
        ("redis+cluster://h1,h!2", "got one whose host is no host name and no IP address"),
        ("redis+cluster://h1#insecure", "got one that cannot be read (it has a #)"),
        ("redis+proxy://h1", "got one with the scheme redis+proxy"),
        ("redis://h1?tls-ca=/x", "parameter other than db, protocol"),
    ];
    for (url, why) in refused {
        let error = url.parse::<Endpoint>().expect_err(url).to_string();
        assert!(error.ends_with(why), "{url}: {error}");
    }
    let checked = |url: &str, change: fn(Endpoint) -> Endpoint| {
        change(url.parse().unwrap()).check().expect_err(url).to_string()
    };
    let cases = [
        (
            checked("redis+cluster://h1", |endpoint| endpoint.with_db(1)),
            "db: expected 0, because a cluster has no other database, got '1'",
        ),
        (
            checked("redis://h1", |endpoint| endpoint.with_tls_ca("/ca.pem")),
            "tls-ca: expected a URL with rediss beside it, got 'one without TLS'",
        ),
        (
            checked("rediss://h1", |endpoint| endpoint.with_tls_cert("/c.pem")),
            "tls-cert: expected tls-key beside it, got 'none'",
        ),
        (
            checked("rediss://h1", |endpoint| endpoint.with_tls_key("/k.pem")),
            "tls-key: expected tls-cert beside it, got 'none'",
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error, expected);
    }
}
