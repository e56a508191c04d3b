package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// authority issues certificates for the loopback interface.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	template := certificate("testenv authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key := newECKey(t)
	der := sign(t, template, template, key, key)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("testenv: certificate: %v", err)
	}
	return authority{cert, key, writePEM(t, "ca.pem", "CERTIFICATE", der)}
}

// issue returns the files of a certificate, for servers and clients, and its key.
func (a authority) issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	template := certificate(name)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key := newECKey(t)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("testenv: key: %v", err)
	}
	der := sign(t, template, a.cert, key, a.key)
	return writePEM(t, "cert.pem", "CERTIFICATE", der), writePEM(t, "key.pem", "PRIVATE KEY", encoded)
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

func sign(t testing.TB, template, parent *x509.Certificate, key, issuer *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), issuer)
	if err != nil {
		t.Fatalf("testenv: certificate: %v", err)
	}
	return der
}

func newECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("testenv: key: %v", err)
	}
	return key
}

func writePEM(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	return writeFile(t, name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
