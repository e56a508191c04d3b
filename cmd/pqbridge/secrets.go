package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

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
			problems = append(problems, fmt.Errorf("PQ_NATS_CREDS %s: %w", c.NATSCreds, err))
		}
	}
	if c.NATSNkey != "" {
		if _, err := nats.NkeyOptionFromSeed(c.NATSNkey); err != nil {
			problems = append(problems, fmt.Errorf("PQ_NATS_NKEY %s: %w", c.NATSNkey, err))
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
			problems = append(problems, fmt.Errorf("PQ_NATS_TLS_CERT %s with PQ_NATS_TLS_KEY %s: %w", c.NATSTLSCert, c.NATSTLSKey, err))
		}
	}
	return errors.Join(problems...)
}
