package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// checkFiles reads the files that say who the service is, whom it trusts and where its
// cluster is. The NATS client reads its files again for every connection, so they may be
// replaced while the service runs; but then a mistake in them only shows in the log,
// between retries. The error joins all problems.
func (c *config) checkFiles() error {
	var problems []error
	if c.NATSCreds != "" {
		text, err := os.ReadFile(c.NATSCreds)
		if err == nil {
			_, err = nkeys.ParseDecoratedUserNKey(text)
		}
		if err != nil {
			problems = append(problems, fileProblem("PQ_NATS_CREDS", c.NATSCreds, err))
		}
	}

	if c.NATSNkey != "" {
		if _, err := nats.NkeyOptionFromSeed(c.NATSNkey); err != nil {
			problems = append(problems, fileProblem("PQ_NATS_NKEY", c.NATSNkey, err))
		}
	}

	problems = append(problems,
		checkSecret("PQ_NATS_PASSWORD_FILE", c.NATSPasswordFile),
		checkSecret("PQ_NATS_TOKEN_FILE", c.NATSTokenFile))

	if c.NATSTLSCA != "" {
		text, err := os.ReadFile(c.NATSTLSCA)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
			err = errors.New("it has no certificate: want one or more in PEM")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("PQ_NATS_TLS_CA %s: %w", c.NATSTLSCA, err))
		}
	}

	if c.NATSTLSCert != "" && c.NATSTLSKey != "" { // else validate complains
		if _, err := tls.LoadX509KeyPair(c.NATSTLSCert, c.NATSTLSKey); err != nil {
			problems = append(problems, fileProblem("PQ_NATS_TLS_CERT with PQ_NATS_TLS_KEY", c.NATSTLSCert+" "+c.NATSTLSKey, err))
		}
	}

	if c.Store == storeFDB {
		problems = append(problems, c.checkFDB())
	}
	return errors.Join(problems...)
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
