package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

func writeSecret(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// The service logs in with a secret from a file, and reads the file again for each attempt.
func TestLoginsFromFiles(t *testing.T) {
	for _, login := range testenv.Logins(t) {
		variable, secret := "PQ_NATS_PASSWORD_FILE", login.Password
		if login.Token != "" {
			variable, secret = "PQ_NATS_TOKEN_FILE", login.Token
		}

		if secret == "" {
			continue
		}

		t.Run(variable, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			writeSecret(t, path, "another\n")
			t.Setenv("PQ_NATS_USER", login.User)
			t.Setenv(variable, path)
			e := testenv.New(t,
				testenv.Options{Stopped: true, NATS: testenv.ServerOptions(t, login.Config)})
			e.NATS.Start()
			s := startService(t, e.NATS.URL())
			awaitLog(t, &s.log, "Authorization Violation")
			writeSecret(t, path, secret)
			awaitLog(t, &s.log, "connected to NATS")
			s.end()
		})
	}
}

// A secret is read anew each time; while the file is away, or empty because it is being written,
// the last one counts.
func TestSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	secret := secretFile(path)

	for _, step := range []struct{ text, want string }{
		{"", ""},
		{"one\n", "one"},
		{"", "one"},
		{" two \r\n", " two "},
		{"a\nb\n", " two "},
		{"three", "three"},
	} {
		writeSecret(t, path, step.text)
		if got := secret(); got != step.want {
			t.Errorf("of a file with %q: %q, want %q", step.text, got, step.want)
		}
	}
	must(t, os.Remove(path))
	if got := secret(); got != "three" {
		t.Errorf("without the file: %q", got)
	}
}

// A key in the place of its file is not in the error.
func TestKeyInsteadOfItsFile(t *testing.T) {
	t.Setenv("PQ_NATS_TLS_CERT", "/cert.pem")
	t.Setenv("PQ_NATS_TLS_KEY", "-----BEGIN PRIVATE KEY-----\nhunter2/\n-----END PRIVATE KEY-----")
	err := configurationError(t)

	want := "PQ_NATS_TLS_CERT with PQ_NATS_TLS_KEY: "
	if text := err.Error(); strings.Contains(text, "hunter") || !strings.Contains(text, want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Each mistake in a file with a secret is named by its error, which does not show the secret.
func TestSecretFileMistakes(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	empty := filepath.Join(dir, "empty")
	lines := filepath.Join(dir, "lines")
	writeSecret(t, good, "hunter2\n")
	writeSecret(t, empty, " \n")
	writeSecret(t, lines, "hunter2\nhunter3\n")

	for _, m := range []struct {
		variables string
		want      []string
	}{
		{"PQ_NATS_TOKEN_FILE=" + empty, []string{"PQ_NATS_TOKEN_FILE " + empty, "is empty"}},
		{"PQ_NATS_TOKEN_FILE=" + lines, []string{"PQ_NATS_TOKEN_FILE " + lines, "several lines"}},
		{
			"PQ_NATS_TOKEN_FILE=" + dir + "/absent",
			[]string{"PQ_NATS_TOKEN_FILE " + dir, "no such file"},
		},
		{"PQ_NATS_TOKEN_FILE=" + dir, []string{"PQ_NATS_TOKEN_FILE " + dir, "is a directory"}},
		{
			"PQ_NATS_TOKEN_FILE=hunter2",
			[]string{"PQ_NATS_TOKEN_FILE: no such file", "not the secret"},
		},
		{"PQ_NATS_TOKEN_FILE=" + good + " PQ_NATS_TOKEN=hunter2", []string{"PQ_NATS_TOKEN and " +
			"PQ_NATS_TOKEN_FILE are both set"}},
		{"PQ_NATS_PASSWORD_FILE=" + good,
			[]string{"PQ_NATS_PASSWORD_FILE is set and PQ_NATS_USER " +
				"is empty"}},
		{
			"PQ_NATS_USER=me PQ_NATS_PASSWORD_FILE=" + good + " PQ_NATS_PASSWORD=hunter2",
			[]string{"PQ_NATS_PASSWORD and PQ_NATS_PASSWORD_FILE are both set"},
		},
		{
			"PQ_NATS_USER=me PQ_NATS_PASSWORD_FILE=" + empty,
			[]string{"PQ_NATS_PASSWORD_FILE " + empty},
		},
		{"PQ_NATS_TOKEN_FILE=" + good + " PQ_NATS_URL=nats://hunter2@host",
			[]string{"PQ_NATS_URL " +
				"names a user"}},
	} {
		t.Run(m.want[0], func(t *testing.T) {
			for _, v := range strings.Fields(m.variables) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			checkProblems(t, m.want)

			if err := configurationError(t); strings.Contains(err.Error(), "hunter") {
				t.Errorf("the secret is in the error:\n%v", err)
			}
		})
	}
}
