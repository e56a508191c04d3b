package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// checkFiles reads the files with logins, certificates, the cluster and the sources. The NATS
// client reads its files again for every connection, so they may be replaced while the service
// runs; a mistake in them then shows only in the log, between retries. The error joins all
// problems.
func (c *config) checkFiles() error {
	var problems []error
	problems = append(problems, c.NATS.checkFiles(), c.Leaf.checkFiles())
	if c.Store == storeFDB {
		problems = append(problems, c.checkFDB())
	}
	_, err := c.sources()
	return errors.Join(append(problems, err)...)
}

// sources reads the file of PQ_SOURCES.
func (c *config) sources() (map[fdbpq.QueueName]string, error) {
	grammar, err := subjects.New(c.SubjectPrefix, c.FIFOPrefix)
	if err != nil || c.Sources == "" { // validate returns the error
		return nil, nil
	}

	object, err := os.ReadFile(c.Sources)
	var configured map[fdbpq.QueueName]string
	if err == nil {
		configured, err = sources.Parse(grammar, object)
	}
	if err != nil {
		return nil, fmt.Errorf("PQ_SOURCES %s: %w", c.Sources, err)
	}
	return configured, nil
}

// checkFDB returns why FoundationDB's client cannot work.
func (c *config) checkFDB() error {
	if !fdbkv.Built {
		return errors.New("this pqbridge was built without FoundationDB, " +
			"which PQ_STORE=fdb and -migrate need: " +
			"want the container image of target fdb, or a build with -tags fdb")
	}
	return checkClusterFile(c.FDBClusterFile)
}

var errNoClusterFile = errors.New("not a FoundationDB cluster file")

// clusterFile returns the path of the cluster file, and what chose it, in the order of
// FoundationDB's client. configured is PQ_FDB_CLUSTER_FILE.
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

// readClusterFile returns the description and id of the cluster in a cluster file. The error wraps
// errNoClusterFile unless the file cannot be read.
func readClusterFile(path string) (name string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return parseClusterFile(string(text))
}

// checkClusterFile returns why FoundationDB's client cannot use the cluster file. The client itself
// would silently retry.
func checkClusterFile(configured string) error {
	path, chosenBy := clusterFile(configured)
	if _, err := readClusterFile(path); err != nil {
		const want = "want the file that the machines of the cluster have, " +
			"with a line such as description:id@10.0.0.1:4500,10.0.0.2:4500"
		return fmt.Errorf("%s %s: %w: %s", chosenBy, path, err, want)
	}
	return nil
}

// clusterName returns the description and id of the cluster in a cluster file, or the path of a
// file that cannot be read.
func clusterName(configured string) string {
	path, _ := clusterFile(configured)
	name, _ := readClusterFile(path)
	return cmp.Or(name, path)
}

var (
	comments = regexp.MustCompile(`#[^\n\r]*`)
	// clusterText is description:id@ and coordinators. The client itself writes (fromHostname)
	// behind addresses that it has looked up.
	clusterText = regexp.MustCompile(
		`^(\w+:[A-Za-z0-9]+)@` + coordinator + `(,` + coordinator + `)*$`)
)

// coordinator matches ip:port or host:port, with :tls or without.
const coordinator = `([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}(:tls)?(\(fromHostname\))?`

// parseClusterFile returns the description and id in the text of a cluster file. Like
// FoundationDB's client, it ignores white space and comments.
func parseClusterFile(text string) (name string, err error) {
	text = strings.Join(strings.Fields(comments.ReplaceAllString(text, "")), "")
	found := clusterText.FindStringSubmatch(text)
	if found == nil {
		return "", errNoClusterFile
	}
	return found[1], nil
}
