"""Second opinions on steps, of judges and critics, written into the candidates; decides no filter."""
