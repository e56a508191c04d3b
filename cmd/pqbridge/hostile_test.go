package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

var (
	noNumbers = []string{
		"", " ", "many", "1e3", "10MB", "5 ", "0.5", "0x", "0777", "9223372036854775808",
		"-9223372036854775809",
	}
	// Neither small nor large, and with no special values.
	noSizes = append([]string{"0", "-1", "-7", "9223372036854775807", "-9223372036854775808"},
		noNumbers...)
	noTimes = []string{
		"", " ", "5", "0", "0s", "-1s", "-1ns", "5 s", "5sec", "1h 2m", "2562047h", "9999999999h",
	}
	noFiles = []string{" ", "absent", "."}
	noKeys  = append([]string{"text"}, noFiles...) // nor certificates
	noNames = []string{"", " ", "a b", "a\tb", "*", ">", "é", strings.Repeat("a", 129)}
	noWords = []string{"", " ", "other", "TEXT", "raw ", "embedded,fdb"}
)

// hostileLogins are values of the variables of a login, which begin with natsPrefix or
// leafPrefix. Any other text could be right for a user, a password and a token.
var hostileLogins = map[string][]string{
	"USER":          {" ", "\t\n"},
	"PASSWORD":      {" "},
	"TOKEN":         {" "},
	"PASSWORD_FILE": noFiles,
	"TOKEN_FILE":    noFiles,
	"CREDS":         noKeys,
	"NKEY":          noKeys,
	"TLS_CA":        noKeys,
	"TLS_CERT":      noKeys,
	"TLS_KEY":       noFiles,
}

// hostileValues are values of each other variable that nobody can mean.
var hostileValues = map[string][]string{
	"PQ_NATS_URL": {
		"", " ", ",", "nats://", "nats://:4222", "nats://host:0", "nats://host:99999", "host:port",
		"nats://ho st", "\n",
	},
	"PQ_JETSTREAM_LEAF_URL": {
		" ", ",", "http://host", "nats-leaf://", "nats-leaf://:7422", "nats-leaf://host:0",
		"nats-leaf://host:99999", "nats-leaf://ho st", "\n",
	},

	"PQ_SUBJECT_PREFIX": append([]string{
		"_x", "a..b", ".a", "a.", "q", strings.Repeat("a.", 600) + "a",
	}, noNames...),
	"PQ_FIFO_PREFIX": append([]string{
		"_x", "a..b", ".a", "a.", "pq.x", strings.Repeat("a.", 600) + "a",
	}, noNames...),
	"PQ_QUEUE_GROUP": append([]string{"a.b"}, noNames...),
	"PQ_SOURCES":     noFiles,

	"PQ_STORE":           noWords,
	"PQ_KEY_PREFIX":      {"", " ", "q", "q-store", strings.Repeat("a", 1025)},
	"PQ_FIFO_KEY_PREFIX": {"", " ", "pq", "pq-x", strings.Repeat("a", 1025)},
	"PQ_VALUE_FORMAT":    noWords,

	"PQ_DATA_DIR":          {"", " ", "\t"},
	"PQ_EMBEDDED_CACHE":    append([]string{"1099511627777"}, noSizes...),
	"PQ_EMBEDDED_MEMTABLE": append([]string{"1048575", "1073741825"}, noSizes...),
	"PQ_EMBEDDED_MIN_FREE": append([]string{
		"0", "-2", "-7", "-9223372036854775808", "1125899906842625", "9223372036854775807",
	}, noNumbers...),

	"PQ_FDB_CLUSTER_FILE":        noFiles,
	"PQ_FDB_API_VERSION":         append([]string{"619", "731"}, noSizes...),
	"PQ_FDB_TRANSACTION_TIMEOUT": append([]string{"1ns", "999us"}, noTimes...),

	"PQ_HTTP_ADDR": {
		"", " ", "8422", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536",
		"127.0.0.1:no", " 127.0.0.1:8422", "http://127.0.0.1:8422", "OFF",
	},
	"PQ_HTTP_TIMEOUT":  append([]string{"1ns", "999us", "24h1s"}, noTimes...),
	"PQ_METRIC_QUEUES": append([]string{"0", "-2", "1000001", "9223372036854775807"}, noNumbers...),

	"PQ_LANES":             append([]string{"-1", "1025", "9223372036854775807"}, noNumbers...),
	"PQ_MAX_BATCH":         append([]string{"65537"}, noSizes...),
	"PQ_MAX_BATCH_BYTES":   append([]string{"8000001"}, noSizes...),
	"PQ_MAX_PENDING":       append([]string{"1073741825"}, noSizes...),
	"PQ_MAX_WAITERS":       append([]string{"1073741825"}, noSizes...),
	"PQ_MAX_RESULT":        append([]string{"1048577"}, noSizes...),
	"PQ_MAX_PENDING_BYTES": append([]string{"1099511627777"}, noSizes...),
	"PQ_REQUEST_TIMEOUT":   append([]string{"1ns", "999us", "24h1s"}, noTimes...),
	"PQ_SHUTDOWN_TIMEOUT":  append([]string{"24h1s"}, noTimes...),

	"PQ_LOG_LEVEL":  append([]string{"loud", "5", "-4"}, noWords...),
	"PQ_LOG_FORMAT": append([]string{"xml"}, noWords...),

	"PQ_DEV_NATS_HOST": {"", " ", "localhost", "nats.example", "127.0.0.1:4222", "*"},
	"PQ_DEV_NATS_PORT": append([]string{"-1", "65536", "04222", "9223372036854775807"},
		noNumbers...),
}

// Each hostile value is refused with an error that names the variable.
func TestHostileValues(t *testing.T) {
	t.Chdir(t.TempDir())
	writeSecret(t, "text", "no key")

	for _, v := range variables() {
		if v.name == "PQ_FDB_CLUSTER_FILE" && !fdbkv.Built {
			continue // that this build cannot use any is what it says
		}

		values := hostileValues[v.name]
		for _, prefix := range []string{natsPrefix, leafPrefix} {
			if part, ofLogin := strings.CutPrefix(v.name, prefix); ofLogin && values == nil {
				values = hostileLogins[part]
			}
		}
		if len(values) == 0 {
			t.Errorf("no hostile values for %s", v.name)
		}

		for _, value := range values {
			t.Run(v.name+"="+value, func(t *testing.T) {
				if strings.HasPrefix(v.name, "PQ_FDB_") {
					t.Setenv("PQ_STORE", storeFDB)
				}

				t.Setenv(v.name, value)
				pair, isCert := strings.CutSuffix(v.name, "TLS_CERT")

				if isCert && value == "text" {
					// Both are set, and neither is what it should be.
					t.Setenv(pair+"TLS_KEY", value)
				}

				err := configurationProblems()
				if err == nil || !strings.Contains(err.Error(), v.name) {
					t.Errorf("error %v: want one that names %s", err, v.name)
				}
			})
		}
	}
}

// configurationProblems returns what run has against the configuration.
func configurationProblems() error {
	c, err := loadConfig(false)
	return errors.Join(err, c.checkFiles())
}

// Every value that the descriptions allow is accepted.
func TestSpecialAndExtremeValues(t *testing.T) {
	for name, values := range map[string][]string{
		"PQ_NATS_URL": {
			"host", "host:4222", "nats://[::1]:4222", "tls://a:1, b:2,", "nats://user:p%20w@host",
		},
		"PQ_NATS_CREDS":        {""},
		"PQ_NATS_TOKEN":        {"", "0777", " x "},
		"PQ_EMBEDDED_CACHE":    {"1", "1099511627776", "0x100000"},
		"PQ_EMBEDDED_MIN_FREE": {"-1", "1", "1125899906842624"},
		"PQ_FDB_CLUSTER_FILE":  {""}, // without PQ_STORE=fdb it is not read
		"PQ_FDB_API_VERSION":   {"620", "730"},
		"PQ_HTTP_ADDR":         {"off", ":8422", "[::1]:0", "localhost:8422", "0.0.0.0:http"},
		"PQ_METRIC_QUEUES":     {"-1", "1", "1000000"},
		"PQ_LANES":             {"0", "1", "1024"},
		"PQ_MAX_BATCH":         {"1", "65536"},
		"PQ_MAX_BATCH_BYTES":   {"1", "8000000"},
		"PQ_MAX_WAITERS":       {"1", "1073741824"},
		"PQ_MAX_RESULT":        {"1", "1048576"},
		"PQ_MAX_PENDING":       {"1", "1073741824"},
		"PQ_MAX_PENDING_BYTES": {"1", "1099511627776"},
		"PQ_REQUEST_TIMEOUT":   {"1ms", "24h"},
		"PQ_SHUTDOWN_TIMEOUT":  {"1ms", "24h"},
		"PQ_LOG_LEVEL":         {"debug", "WARN"},
		"PQ_DEV_NATS_HOST":     {"0.0.0.0", "::", "::1", "10.0.0.1"},
		"PQ_DEV_NATS_PORT":     {"0", "65535"},
	} {
		for _, value := range values {
			t.Run(name+"="+value, func(t *testing.T) {
				t.Setenv(name, value)
				if err := configurationProblems(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Variables that loadConfig hides from envconfig are there again afterwards.
func TestLoadingLeavesTheEnvironment(t *testing.T) {
	setenv(t, map[string]string{
		"PQ_LANES":         "many",
		"PQ_HTTP_TIMEOUT":  "5",
		"PQ_DEV_NATS_PORT": "tcp://10.43.12.8:4222",
	})

	_, first := loadConfig(false)
	_, second := loadConfig(false)
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("first:\n%v\nthen:\n%v", first, second)
	}

	if got := os.Getenv("PQ_DEV_NATS_PORT"); got != "tcp://10.43.12.8:4222" {
		t.Errorf("PQ_DEV_NATS_PORT is %q", got)
	}
}

// A cluster file is read as FoundationDB's client reads it, and anything else is refused.
func TestClusterFile(t *testing.T) {
	for text, want := range map[string]string{
		"docker:Ab12@10.0.0.1:4500":                               "docker:Ab12",
		"# DO NOT EDIT@all\n\n docker:Ab12@10.0.0.1:4500,b:1\r\n": "docker:Ab12",
		"a_1:2@1.1.1.1:1:tls,[::1]:2,[abcd::1]:3:tls # comment":   "a_1:2",
		"pqbridge:pqbridge@foundationdb:4500":                     "pqbridge:pqbridge",
		"a:b@host-1.example.com:4500:tls,1.1.1.1:1(fromHostname)": "a:b",
		"a:b@ 1.1.1.1 : 4500 ,\n1.1.1.2:4500":                     "a:b",
		"":                                                        "",
		" \n":                                                     "",
		"# only a comment":                                        "",
		"garbage":                                                 "",
		"a:b":                                                     "",
		"a:b@":                                                    "",
		"@1.1.1.1:1":                                              "",
		"a@1.1.1.1:1":                                             "",
		"a:b@1.1.1.1":                                             "",
		"a:b@1.1.1.1:655360":                                      "",
		"a:b@1.1.1.1:1,":                                          "",
		"a b!:c@1.1.1.1:1":                                        "",
		"a:b_@1.1.1.1:1":                                          "",
		"a:b:c@1.1.1.1:1":                                         "",
		"a:b@::1:4500":                                            "",
		"a:b@host:port":                                           "",
		"a:b@1.1.1.1:1;1.1.1.2:1":                                 "",
		"<html>":                                                  "",
		"{\"a\":1}":                                               "",
		"\x00\xff\x80":                                            "",
		"-----BEGIN CERTIFICATE-----":                             "",
	} {
		name, err := parseClusterFile(text)
		if name != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, name, err, want)
		}
	}
}

// The service does not start without a cluster file that FoundationDB's client can use, and says
// what one looks like.
func TestUnusableClusterFile(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage.cluster")
	must(t, os.WriteFile(garbage, []byte("garbage\n"), 0o600))

	for _, test := range []struct{ variable, path, problem string }{
		{"PQ_FDB_CLUSTER_FILE", garbage, "not a FoundationDB cluster file"},
		{"FDB_CLUSTER_FILE", garbage + ".absent", "no such file"},
		{"PQ_FDB_CLUSTER_FILE", filepath.Dir(garbage), "is a directory"},
	} {
		t.Run(test.variable+" "+test.problem, func(t *testing.T) {
			t.Setenv("PQ_STORE", storeFDB)
			t.Setenv(test.variable, test.path)
			err := checkClusterFile(os.Getenv("PQ_FDB_CLUSTER_FILE"))

			if fdbkv.Built {
				err = configurationError(t)
			}
			wantProblems(t, err, []string{
				test.variable + " " + test.path + ": ",
				test.problem,
				"description:id@10.0.0.1:4500",
			})
		})
	}
}

const builtWithout = "built without FoundationDB"

// Without a cluster file, a program that could not use one says only that.
func TestFDBHasOneProblem(t *testing.T) {
	t.Setenv("PQ_STORE", storeFDB)
	t.Setenv("PQ_FDB_CLUSTER_FILE", "absent.cluster")
	text := configurationError(t).Error()
	without := strings.Contains(text, builtWithout)

	missing := strings.Contains(text, "absent.cluster")
	if without == fdbkv.Built || missing != fdbkv.Built {
		t.Errorf("built with FoundationDB: %v; the error is\n%s", fdbkv.Built, text)
	}
}
