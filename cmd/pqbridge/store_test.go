package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The service refuses to start with other values of the settings that a store keeps for good, and
// names the variables.
func TestChangedSettingsOfTheStore(t *testing.T) {
	t.Parallel()

	data := "PQ_DATA_DIR=" + t.TempDir()
	c := startDev(t, data)
	request(t, connect(t, c.nats), "pq.jobs.push", "kept")
	c.stop(syscall.SIGTERM)

	for name, change := range map[string]struct{ variables, words []string }{
		"value format": {[]string{"PQ_VALUE_FORMAT=tuple"},
			[]string{"PQ_VALUE_FORMAT", "raw", "tuple"}},
		"key prefix": {[]string{"PQ_KEY_PREFIX=other"},
			[]string{"PQ_KEY_PREFIX", `"pq"`, `"other"`}},
		"FIFO key prefix": {[]string{"PQ_FIFO_KEY_PREFIX=other"},
			[]string{"PQ_FIFO_KEY_PREFIX", `"q"`, `"other"`}},
	} {
		t.Run(name, func(t *testing.T) {
			words := append(change.words, strings.TrimPrefix(data, "PQ_DATA_DIR="))
			refuses(t, []string{"-dev"}, append(change.variables, data), words...)
		})
	}

	c = startDev(t, data)
	pops(t, connect(t, c.nats), "pq.jobs.pop.min", "kept")
}

// A second service on the same NATS does not start with another folder, nor with a copy of the
// first one's. The error names both folders.
func TestSecondFolderOnOneNATS(t *testing.T) {
	t.Parallel()

	first, second, copied := t.TempDir(), t.TempDir(), t.TempDir()
	c := startDev(t, "PQ_DATA_DIR="+first)
	request(t, connect(t, c.nats), "pq.jobs.push", "x")
	c.stop(syscall.SIGTERM)
	must(t, os.CopyFS(filepath.Join(copied, "data"), os.DirFS(first)))

	c = startDev(t, "PQ_DATA_DIR="+first)
	host, err := os.Hostname()
	must(t, err)

	for folder, word := range map[string]string{
		second:                        "another store",
		filepath.Join(copied, "data"): "copy",
	} {
		refuses(t, nil, []string{"PQ_NATS_URL=" + c.nats, "PQ_DATA_DIR=" + folder}, word, host,
			first, folder, `"pq"`)
	}

	request(t, connect(t, c.nats), "pq.jobs.pop.min", "")
}

// A cluster is named by its description and id, or by the path of a file that cannot be read.
func TestLocationOfFoundationDB(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fdb.cluster")
	t.Setenv("FDB_CLUSTER_FILE", file)
	c := config{Store: storeFDB}

	for _, want := range []string{"FoundationDB " + file, "FoundationDB docker:Ab12"} {
		if got := c.storeLocation(); got != want {
			t.Errorf("the location is %q, want %q", got, want)
		}
		writeSecret(t, file, "docker:Ab12@10.0.0.1:4500\n")
	}
}
