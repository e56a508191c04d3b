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
)

// checkSecrets reads the files that say who the service is and whom it trusts.
// The NATS client reads them again for each connection, so they may be replaced
// while the service runs, but of a mistake in them it would speak in the log only,
// while it tries again for ever. The error joins all problems.
func (c *config) checkSecrets() error {
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
	if c.NATSTLSCA != "" {
		text, err := os.ReadFile(c.NATSTLSCA)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
			err = errors.New("no certificate in it: want one or more in PEM")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("PQ_NATS_TLS_CA %s: %w", c.NATSTLSCA, err))
		}
	}
	if c.NATSTLSCert != "" && c.NATSTLSKey != "" { // validate says if one is missing
		if _, err := tls.LoadX509KeyPair(c.NATSTLSCert, c.NATSTLSKey); err != nil {
			problems = append(problems, fileProblem("PQ_NATS_TLS_CERT with PQ_NATS_TLS_KEY", c.NATSTLSCert+" "+c.NATSTLSKey, err))
		}
	}
	return errors.Join(problems...)
}

// secret is what begins a secret that was pasted where its file belongs: a seed of
// nkeys, or a block of PEM.
var secret = regexp.MustCompile(`(^|\s)S[A-Z2-7]{50,}|-----BEGIN|\n`)

// fileProblem is an error about the file of a variable, without what might be the
// secret itself.
func fileProblem(variable, path string, err error) error {
	if secret.MatchString(path) {
		return fmt.Errorf("%s is no path: want the name of a file with the secret in it, not the secret", variable)
	}
	return fmt.Errorf("%s %s: %w", variable, path, err)
}
