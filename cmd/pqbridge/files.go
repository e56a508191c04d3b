package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// checkFiles reads the files that say who the service is, whom it trusts and where its
// cluster is. The NATS client reads its files again for every connection, so they may be
// replaced while the service runs; but then a mistake in them only shows in the log,
// between retries. The error joins all problems.
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
	if err != nil || c.Sources == "" { // validate has seen to the error
		return nil, nil
	}
	object, err := os.ReadFile(c.Sources)
	var configured map[fdbpq.QueueName]string
	if err == nil {
		configured, err = sources.Parse(grammar, object)
	}
	if err != nil {
		return nil, fileProblem("PQ_SOURCES", c.Sources, err)
	}
	return configured, nil
}

// checkFDB returns why FoundationDB's client cannot work.
func (c *config) checkFDB() error {
	if !fdbkv.Built { // and no cluster file would help
		return errors.New("this pqbridge was built without FoundationDB, which PQ_STORE=fdb and -migrate need: " +
			"want the container image of target fdb, or a build with -tags fdb")
	}
	return checkClusterFile(c.FDBClusterFile)
}

// secret matches a secret that was pasted where the path of its file belongs: an nkey
// seed, or a block of PEM.
var secret = regexp.MustCompile(`(^|\s)S[A-Z2-7]{50,}|-----BEGIN|\n`)

// fileProblem is an error about the file that a variable names. It does not show a value
// that may be the secret itself.
func fileProblem(variable, path string, err error) error {
	if secret.MatchString(path) {
		return fmt.Errorf("%s is not a path: want the name of the file that holds the secret, not the secret", variable)
	}
	return fmt.Errorf("%s %s: %w", variable, path, err)
}
