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

// selfSigned makes a certificate for the loopback interface that is its own authority. It returns
// the files of the certificate and of its key.
func selfSigned(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	certificate := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}

	certificate.ExtKeyUsage = append(certificate.ExtKeyUsage,
		x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)

	key := made(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	signed := made(x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key))
	encoded := made(x509.MarshalPKCS8PrivateKey(key))
	certFile = writePEM(t, "cert.pem", "CERTIFICATE", signed)
	return certFile, writePEM(t, "key.pem", "PRIVATE KEY", encoded)
}

func writePEM(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	return writeFile(t, name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
