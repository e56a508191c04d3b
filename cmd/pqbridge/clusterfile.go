package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
)

// maxClusterFile is how much of a cluster file FoundationDB's client reads, in bytes.
const maxClusterFile = 60000

var errNoClusterFile = errors.New("not a FoundationDB cluster file")

// clusterFile returns the path of the cluster file, and what chose it. The order is that
// of FoundationDB's client. configured is PQ_FDB_CLUSTER_FILE.
func clusterFile(configured string) (path, chosenBy string) {
	if configured != "" {
		return configured, "PQ_FDB_CLUSTER_FILE"
	}
	if path, set := os.LookupEnv("FDB_CLUSTER_FILE"); set {
		return path, "FDB_CLUSTER_FILE"
	}
	path = "fdb.cluster"
	if _, err := os.Stat(path); err != nil {
		path = "/etc/foundationdb/fdb.cluster"
	}
	return path, "PQ_FDB_CLUSTER_FILE is unset, so the cluster file is"
}

// readClusterFile returns the description and id of the cluster in a cluster file. The
// error wraps errNoClusterFile unless the file cannot be read.
func readClusterFile(path string) (name string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()

	text, err := io.ReadAll(io.LimitReader(file, maxClusterFile)) // it may be the path of anything
	if err != nil {
		return "", err
	}
	return parseClusterFile(string(text))
}

// checkClusterFile returns why FoundationDB's client cannot use the cluster file. The
// client itself would retry without a word.
func checkClusterFile(configured string) error {
	path, chosenBy := clusterFile(configured)
	if _, err := readClusterFile(path); err != nil {
		return fmt.Errorf("%s %s: %w: want the file that the machines of the cluster have, with a line such as "+
			"description:id@10.0.0.1:4500,10.0.0.2:4500", chosenBy, path, err)
	}
	return nil
}

// clusterName returns the description and id of the cluster in a cluster file, or the
// path of a file that cannot be read.
func clusterName(configured string) string {
	path, _ := clusterFile(configured)
	name, _ := readClusterFile(path)
	return cmp.Or(name, path)
}

var (
	comments   = regexp.MustCompile(`#[^\n\r]*`)
	whiteSpace = regexp.MustCompile(`[ \t\n\r]`)
	// clusterText is description:id@ and coordinators. The client itself writes (fromHostname) behind
	// addresses that it has looked up.
	clusterText = regexp.MustCompile(`^(\w+:[A-Za-z0-9]+)@` + coordinator + `(,` + coordinator + `)*$`)
)

// coordinator matches ip:port or host:port, with :tls or without.
const coordinator = `([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}(:tls)?(\(fromHostname\))?`

// parseClusterFile returns the description and id in the text of a cluster file. White
// space and comments count for nothing, as in FoundationDB's client.
func parseClusterFile(text string) (name string, err error) {
	found := clusterText.FindStringSubmatch(whiteSpace.ReplaceAllString(comments.ReplaceAllString(text, ""), ""))
	if found == nil {
		return "", errNoClusterFile
	}
	return found[1], nil
}
