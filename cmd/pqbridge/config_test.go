package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// All mistakes are reported at once. TestHostileValues makes them one by one.
func TestEveryProblem(t *testing.T) {
	type mistake struct {
		variable, value string
		want            []string // in the error
	}

	mistakes := []mistake{
		{"PQ_STORE", "redis", []string{"PQ_STORE", `"redis"`, "embedded", "fdb"}},
		{
			"PQ_NATS_TLS_CERT",
			"cert.pem",
			[]string{`PQ_NATS_TLS_CERT is "cert.pem" and PQ_NATS_TLS_KEY ""`},
		},
		{
			"PQ_KEY_PREFIX",
			"q",
			[]string{"PQ_KEY_PREFIX and PQ_FIFO_KEY_PREFIX", "the FIFO queues", "differ"},
		},
		{"PQ_SUBJECT_PREFIX", "a..b", []string{"PQ_SUBJECT_PREFIX", "empty"}},
		{"PQ_QUEUE_GROUP", "a b", []string{`PQ_QUEUE_GROUP is "a b": want 1 to 128 letters`}},
		{
			"PQ_HTTP_ADDR",
			"127.0.0.1:99999",
			[]string{`PQ_HTTP_ADDR is "127.0.0.1:99999": want host:port or off`},
		},
		{"PQ_LANES", "-1", []string{"PQ_LANES is -1: want 1 to 1024, or 0 for the default"}},
		{
			"PQ_MAX_BATCH_BYTES",
			"9000000",
			[]string{"PQ_MAX_BATCH_BYTES is 9000000: want 1 to 8000000"},
		},
		{"PQ_REQUEST_TIMEOUT", "-1s", []string{"PQ_REQUEST_TIMEOUT is -1s: want 1ms to 24h"}},
		{
			"PQ_SHUTDOWN_TIMEOUT",
			"-1s",
			[]string{"PQ_SHUTDOWN_TIMEOUT is -1s: want more than 0, at most 24h"},
		},
		{
			"PQ_EMBEDDED_MEMTABLE",
			"5",
			[]string{"PQ_EMBEDDED_MEMTABLE is 5: want 1048576 to 1073741824"},
		},
		{
			"PQ_EMBEDDED_MIN_FREE",
			"-7",
			[]string{"PQ_EMBEDDED_MIN_FREE is -7: want 1 to 1125899906842624, " +
				"or -1 to keep nothing free"},
		},
		{"PQ_FDB_API_VERSION", "100", []string{"PQ_FDB_API_VERSION is 100: want 620 to 730"}},
		{
			"PQ_FDB_TRANSACTION_TIMEOUT",
			"1us",
			[]string{"PQ_FDB_TRANSACTION_TIMEOUT is 1µs: want 1ms to "},
		},
		{"PQ_NATS_CREDS", "absent.creds", []string{"PQ_NATS_CREDS: no such file", "want the path"}},
		{"PQ_NATS_TLS_CA", "absent.pem", []string{"PQ_NATS_TLS_CA absent.pem", "no such file"}},
		{"PQ_DATADIR", "x", []string{"PQ_DATADIR is not a variable", "pqbridge -help lists them"}},
	}

	unreadable := []mistake{
		{"PQ_LANES", "many", []string{`PQ_LANES is "many": want a whole number`}},
		{
			"PQ_REQUEST_TIMEOUT",
			"5",
			[]string{`PQ_REQUEST_TIMEOUT is "5": want a time such as 500ms, 5s or 1m`},
		},
		{
			"PQ_LOG_LEVEL",
			"loud",
			[]string{`PQ_LOG_LEVEL is "loud": want debug, info, warn or error`},
		},
		{"PQ_MAX_PENDNIG", "1", []string{"PQ_MAX_PENDNIG is not a variable"}},
	}

	for name, all := range map[string][]mistake{"refused": mistakes, "unreadable": unreadable} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, m := range all {
				t.Setenv(m.variable, m.value)
				want = append(want, m.want...)
			}
			checkProblems(t, want)
		})
	}
}

// checkProblems starts the service and fails the test unless that fails with all of the words.
func checkProblems(t *testing.T, want []string) {
	t.Helper()
	wantProblems(t, configurationError(t), want)
}

func wantProblems(t *testing.T, err error, want []string) {
	t.Helper()
	wantWords(t, err.Error(), want...)

	for _, internal := range []string{"\nbridge:", "\npebblekv:", "\nfdbkv:"} {
		if strings.Contains(err.Error(), internal) {
			t.Errorf("the error names %q, which means nothing to users:\n%v", internal, err)
		}
	}
}

// configurationError starts the service, which stops at once if it does start, and returns the
// error.
func configurationError(t *testing.T) error {
	t.Helper()
	t.Chdir(t.TempDir()) // where nothing is
	ctx, stop := context.WithCancel(t.Context())
	stop()

	err := run(ctx, nil, io.Discard, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}

	return err
}

// An error may say that a secret is wrong, but not what it is.
func TestSecretsAreNotShown(t *testing.T) {
	for _, url := range []string{
		"nats://user:hunter2@[::1", "nats://user:hun%ter2@host", "nats://user:hunter2/x@host",
		"user:hunter2@host:port",
		"nats://a:1,nats://user:hunter2,hunter2@host",
	} {
		t.Run(url, func(t *testing.T) {
			t.Setenv("PQ_NATS_URL", url)
			t.Setenv("PQ_NATS_PASSWORD", "hunter2") // without a user
			t.Setenv("PQ_NATS_TOKEM", "hunter2")

			err := configurationError(t)
			if strings.Contains(err.Error(), "hun") {
				t.Errorf("the secret is in the error:\n%v", err)
			}
			wantWords(t, err.Error(), "PQ_NATS_URL is ", "PQ_NATS_PASSWORD is set",
				"PQ_NATS_TOKEM is not a variable")
		})
	}
}

// A health check does not log in, so it works while files with secrets are being replaced.
func TestHealthcheckNeedsNoSecrets(t *testing.T) {
	t.Setenv("PQ_NATS_CREDS", filepath.Join(t.TempDir(), "absent"))
	t.Setenv("PQ_HTTP_ADDR", httpOff)

	err := run(t.Context(), []string{"-healthcheck"}, io.Discard, io.Discard)
	if err == nil || strings.Contains(err.Error(), "PQ_NATS_CREDS") {
		t.Errorf("error %v: want one about PQ_HTTP_ADDR only", err)
	}
}

// With -dev, variables of the connection to another NATS server are refused.
func TestDevRefusesNATSVariables(t *testing.T) {
	t.Setenv("PQ_NATS_URL", "nats://elsewhere:4222")
	if _, err := loadConfig(false); err != nil {
		t.Error(err)
	}

	_, err := loadConfig(true)
	if err == nil || !strings.Contains(err.Error(), "PQ_NATS_URL has no use with -dev") {
		t.Errorf("PQ_NATS_URL with -dev: %v, want that it has no use", err)
	}
}

// Every variable changes an option of the packages below.
func TestEveryVariableHasEffect(t *testing.T) {
	c, err := loadConfig(false)
	must(t, err)

	options := func() []any {
		_, absent := c.sources()
		return []any{c.bridgeOptions(), c.pebbleOptions(nil), c.fdbOptions(), absent != nil}
	}

	// These have tests of their own: grammar, keyspace, the choice of the engine, log,
	// NATS options.
	elsewhere := []string{
		"PQ_SUBJECT_PREFIX", "PQ_FIFO_PREFIX", "PQ_STORE", "PQ_KEY_PREFIX", "PQ_FIFO_KEY_PREFIX",
		"PQ_VALUE_FORMAT", "PQ_DATA_DIR", "PQ_LOG_LEVEL", "PQ_LOG_FORMAT", "PQ_DEV_NATS_HOST",
		"PQ_DEV_NATS_PORT",
	}

	for _, v := range c.variables() {
		name := v.name
		ofLogin := strings.HasPrefix(name, natsPrefix) || strings.HasPrefix(name, leafPrefix)

		if slices.Contains(elsewhere, name) || ofLogin && !strings.HasSuffix(name, "_URL") {
			continue
		}

		before := options()
		value := v.value
		old := reflect.New(value.Type()).Elem()
		old.Set(value)

		if value.CanInt() {
			value.SetInt(value.Int() + 1)
		} else {
			value.SetString(value.String() + "x")
		}

		after := options()
		if reflect.DeepEqual(before, after) {
			t.Errorf("%s changes nothing", name)
		}

		value.Set(old)
	}
}

// In a pod, a variable that is refused may be one that Kubernetes sets for a Service called pq.
func TestServiceLinks(t *testing.T) {
	for host, link := range map[string]bool{"10.43.0.1": true, "": false} {
		t.Setenv("KUBERNETES_SERVICE_HOST", host)
		problems := unknownVariables([]string{"PQ_SERVICE_HOST=10.43.12.7"})
		if len(problems) != 1 ||
			strings.Contains(problems[0].Error(), "enableServiceLinks: false") != link {
			t.Errorf("in a pod %v: %v", link, problems)
		}
	}
}

// The help tells of every flag and variable, in lines of 80 columns.
func TestHelp(t *testing.T) {
	for _, flag := range []string{"-help", "-h", "--help"} {
		var out bytes.Buffer
		must(t, run(t.Context(), []string{flag}, &out, &out))
		text := out.String()
		wantWords(t, text, "-dev", "-version", "-healthcheck", "-backup", "-restore", "-migrate")

		words := strings.Join(strings.Fields(text), " ")
		for _, v := range variables() {
			want := v.name + " " + v.description
			if byDefault := v.text(); byDefault != "" {
				want += " (default " + byDefault + ")"
			}
			if v.description == "" || !strings.Contains(words, " "+want+" ") {
				t.Errorf("%s does not tell of %s with its meaning and default", flag, v.name)
			}
		}

		for line := range strings.Lines(text) {
			if len(line) > helpWidth+1 {
				t.Errorf("%s: this line has more than %d columns:\n%s", flag, helpWidth, line)
			}
		}
	}
}

// -version prints the version and the release of Go.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	must(t, run(t.Context(), []string{"-version"}, &out, &out))
	if !strings.HasPrefix(out.String(), "pqbridge ") ||
		!strings.Contains(out.String(), runtime.Version()) {
		t.Errorf("printed %q", out.String())
	}
}

// Unknown arguments and flags are refused, with a hint at -help.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"serve"}, {"-port", "1"}} {
		var out bytes.Buffer
		err := run(t.Context(), args, &out, &out)
		if err == nil || !strings.Contains(err.Error(), "-help") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
